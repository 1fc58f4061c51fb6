"""What keeps policy stages in bounds: one table each, read by every stage that has a policy loss."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from truing.config.parts import Part


class KlConfig(Part):
    """Distance from the reference, as a term of the loss or a part of the reward."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL to the reference; 0 needs no reference."""
    where: Literal["loss", "reward"] = "loss"
    """A term of the loss; or taken off the reward of each token, detached, before anything is normalised."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """In the loss k2 has the gradient of KL(policy ‖ reference), k1 none; in the reward k1 has it."""

    @model_validator(mode="after")
    def _pulls(self) -> "KlConfig":
        """Refuse what has no gradient."""
        if self.where == "loss" and self.estimator == "k1":
            raise ValueError(
                'k1 in the loss has a gradient of 0 on average: take k2 or k3, or kl.where = "reward"'
            )
        return self
