"""The algorithms, by the name of the stage in a recipe."""

from truing.algos.base import Algorithm, LossTerm, StepConfig
from truing.algos.grpo import GRPO
from truing.algos.ppo import PPO
from truing.algos.reinforce import REINFORCE
from truing.algos.rft import RFT
from truing.algos.rloo import RLOO
from truing.algos.sft import SFT

ALGORITHMS: dict[str, Algorithm] = {
    "sft": SFT,
    "rft": RFT,
    "reinforce": REINFORCE,
    "rloo": RLOO,
    "grpo": GRPO,
    "ppo": PPO,
}

__all__ = ["ALGORITHMS", "Algorithm", "LossTerm", "StepConfig"]
