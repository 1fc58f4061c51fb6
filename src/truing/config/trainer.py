"""The recipe's table of the trainer's processes."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt


class TrainerConfig(FrozenModel):
    """The processes that train: each computes a share of the samples and holds a part of the weights."""

    ranks: PositiveInt = 1
    """Number of processes (docs/scale.md); `truing train --ranks` sets it and starts them."""
    replicate: PositiveInt | Literal["auto"] = "auto"
    """Groups of ranks that each hold all weights, sharded within one; `auto`: one a rank if memory allows."""
    offload: bool = False
    """Keep weights, gradients and moments in main memory (FSDP2). Not yet run on a GPU by us."""
    timeout: PositiveFloat = 1800.0
    """Seconds after which an exchange between ranks fails."""
    restarts: int = Field(default=3, ge=0)
    """How often a run is resumed after a rank, its node or an engine that Ray placed was lost."""

    def contradictions(self) -> Iterator[str]:
        """Refuse groups of unequal size."""
        if self.replicate != "auto" and self.ranks % self.replicate:
            yield (
                f"trainer.replicate = {self.replicate} does not divide trainer.ranks = {self.ranks}:"
                ' set a divisor, or "auto"'
            )
