"""TRL's Python API on Truing's trainer: ``from truing.trl import GRPOTrainer, GRPOConfig``.

A script of TRL 1.16 runs with the import changed; docs/trl.md says what becomes of each argument.
"""

from truing.trl.configs import GRPOConfig, RLOOConfig, SFTConfig
from truing.trl.policy_trainers import GRPOTrainer, RLOOTrainer
from truing.trl.sft_trainer import SFTTrainer

__all__ = ["GRPOConfig", "GRPOTrainer", "RLOOConfig", "RLOOTrainer", "SFTConfig", "SFTTrainer"]
