"""What keeps policy stages in bounds: one table each, read by every stage that has a policy loss."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt


class KlConfig(FrozenModel):
    """Distance from the reference, as a term of the loss or a part of the reward."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL to the reference; 0 needs no reference."""
    where: Literal["loss", "reward"] = "loss"
    """A term of the loss; or taken off the reward of each token, detached, before anything is normalised."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """In the loss k2 has the gradient of KL(policy ‖ reference), k1 none; in the reward k1 has it."""
    target: PositiveFloat | None = None
    """Nats per token (`kl_all/k3`) that `coef` follows from step to step; not given, it stays."""
    horizon: PositiveInt = 10_000
    """Rollouts over which `coef` changes by at most a fifth on its way to the target."""

    cap: PositiveFloat | None = None
    """Nats per token (k3, over what was computed) beyond which no update is made; not given, no cap."""
    cap_action: Literal["stop_epochs", "skip", "rollback", "stop"] = "stop_epochs"
    """Beyond it: drop the later updates of the step, or all from this one on; `[guard]` steps in; or end."""

    @property
    def needs_reference(self) -> bool:
        """Whether anything asks for the reference."""
        return self.coef > 0 or self.cap is not None

    @model_validator(mode="after")
    def _pulls(self) -> "KlConfig":
        """Refuse what has no gradient, and a weight that cannot grow."""
        if self.where == "loss" and self.estimator == "k1":
            raise ValueError(
                'k1 in the loss has a gradient of 0 on average: take k2 or k3, or kl.where = "reward"'
            )
        if self.target is not None and self.coef == 0:
            raise ValueError("kl.target multiplies kl.coef, and 0 stays 0: give it a weight to begin with")
        return self


class GatesConfig(FrozenModel):
    """What must hold before a token, an attempt, a group or a step may move the weights."""

    min_ratio: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Tokens whose ratio to the policy that drew them is smaller are left out of the policy term."""
    max_ratio: Annotated[float, Field(gt=1)] | None = None
    """Tokens whose ratio is larger are left out of the policy term."""
    min_trained_tokens: Annotated[int, Field(ge=0)] = 0
    """A step with fewer tokens under the policy term makes no update."""
    min_trained_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Nor does one where a smaller share of what was sampled or forced is under the policy term."""
    equal_groups: Literal["count", "drop", "resample"] = "count"
    """Groups of equal task reward: counted in denominators, left out, or replaced by other prompts'."""
    max_resample: PositiveInt = 3
    """How often a step draws other prompts to replace groups of equal reward."""
    truncated: Literal["keep", "mask", "penalize"] = "keep"
    """Attempts that were cut: trained on as they were graded, not trained on, or graded lower."""
    truncated_penalty: PositiveFloat = 1.0
    """What `penalize` takes off the reward of an attempt that was cut."""
    overlong_tokens: Annotated[int, Field(ge=0)] = 0
    """Last tokens before `sampling.max_new_tokens` over which a long turn costs more and more; 0 is off."""
    overlong_penalty: PositiveFloat = 1.0
    """What the longest possible turn costs."""


class CorrectionConfig(FrozenModel):
    """For a sampler that is not the trainer's policy: weights by old / sampler probability, held constant."""

    method: Literal["off", "truncate", "mask", "sequence"] = "off"
    """Cap the weight at `high`; drop tokens outside `low` and `high`; or drop whole answers by their mean."""
    low: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """The smallest ratio that is kept."""
    high: Annotated[float, Field(gt=1)] = 2.0
    """The largest ratio."""


class ReferenceConfig(FrozenModel):
    """What the KL compares with: the policy at the start of the stage, or one that follows it."""

    sync_every: Annotated[int, Field(ge=0)] = 0
    """Steps between syncs with the policy; 0 leaves the reference frozen."""
    keep: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the old reference that a sync keeps: 0 copies the policy, 0.99 moves by a hundredth."""


class EntropyConfig(FrozenModel):
    """A bonus for entropy, of the distribution that tokens are drawn from."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the bonus: entropy times it is taken off the loss."""
    target: PositiveFloat | None = None
    """Nats per token (`entropy/contract`) that `coef` follows from step to step; not given, it stays."""
    step: PositiveFloat = 0.005
    """What `coef` rises by where the entropy is below the target, and falls by where it is above."""

    @property
    def active(self) -> bool:
        """Whether there may be a bonus in some step."""
        return self.coef > 0 or self.target is not None


class BootstrapConfig(FrozenModel):
    """Demonstrations beside rollouts over the first steps, for a policy that hardly earns anything yet."""

    steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the weight falls linearly to 0; 0 is off."""
    coef: PositiveFloat = 1.0
    """Weight of the demonstrations' cross-entropy in the first step."""
    batch_size: PositiveInt = 8
    """Demonstrations per step."""


class GuardConfig(FrozenModel):
    """Sets an unstable stage back to its last good checkpoint and goes on with more care; `false` is off."""

    rollbacks: PositiveInt = 3
    """How often in a stage, whose run then ends with a report (`guard.md`)."""
    window: PositiveInt = 3
    """Steps that are averaged; a checkpoint is good once so many were made after it."""
    reward_drop: PositiveFloat | None = None
    """Rolls back where the mean reward is this far below the stage's first step, or its best window."""
    entropy_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Rolls back below this multiple of the entropy (`entropy/drawn`) of the stage's first step."""
    entropy_high: Annotated[float, Field(gt=1)] | None = None
    """Rolls back above this multiple of it."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """What learning rates are multiplied by, each time."""
    change: tuple[str, ...] = ()
    """Overrides from the first time on, as on the command line: `kl.cap=10`, `gates.max_ratio=` for none."""

    @model_validator(mode="after")
    def _changes(self) -> "GuardConfig":
        """Refuse to do the same again."""
        if self.learning_rate == 1 and not self.change:
            raise ValueError(
                "the same steps would be made again: set guard.learning_rate below 1, or guard.change"
            )
        return self
