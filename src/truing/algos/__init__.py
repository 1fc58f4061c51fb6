"""The algorithms, by the name that a recipe gives its stage."""

from truing.algos.base import Algorithm
from truing.algos.grpo import GRPO
from truing.algos.rft import RFT
from truing.algos.sft import SFT

ALGORITHMS: dict[str, Algorithm] = {"sft": SFT, "rft": RFT, "grpo": GRPO}

__all__ = ["ALGORITHMS", "Algorithm"]
