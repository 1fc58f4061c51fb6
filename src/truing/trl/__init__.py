"""TRL's Python API on Truing's trainer: ``from truing.trl import GRPOTrainer, GRPOConfig``.

A script of TRL 1.16 runs with the import changed; docs/trl.md says what becomes of each argument. TRL's
helpers that a script imports beside the trainers, such as its argument parser, are passed on from TRL.
"""

from importlib import import_module
from typing import Any

from truing.trl.arguments.configs import GRPOConfig, RLOOConfig, SFTConfig
from truing.trl.policy_trainers import GRPOTrainer, RLOOTrainer
from truing.trl.sft_trainer import SFTTrainer

__all__ = ["GRPOConfig", "GRPOTrainer", "RLOOConfig", "RLOOTrainer", "SFTConfig", "SFTTrainer"]

HELPERS = (
    "DatasetMixtureConfig", "ModelConfig", "RichProgressCallback", "ScriptArguments", "TrlParser",
    "apply_chat_template", "extract_prompt", "get_dataset", "get_peft_config", "get_quantization_config",
    "is_conversational", "maybe_apply_chat_template", "maybe_convert_to_chatml", "maybe_extract_prompt",
)  # fmt: skip
"""Names of TRL that do not depend on its trainers."""


def __getattr__(name: str) -> Any:
    """Return a helper of the installed TRL.

    Raises:
        ImportError: TRL is not installed, or Truing has nothing like what the name stands for.
    """
    if name in HELPERS:
        try:
            return getattr(import_module("trl"), name)
        except ImportError as error:
            raise ImportError(
                f"{name} is a helper of TRL, which is not installed: pip install trl"
            ) from error
    if name.endswith(("Trainer", "Config", "Callback")):
        raise ImportError(
            f"truing.trl has no {name}: it has the trainers and configs of GRPO, RLOO and SFT, and passes on"
            f" {', '.join(HELPERS)}"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
