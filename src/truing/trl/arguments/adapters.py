"""A peft ``LoraConfig`` as ``[lora]``."""

from typing import Any

from peft import LoraConfig
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

from truing.trl.arguments.problems import Problems

TRANSLATED = {"r", "lora_alpha", "lora_dropout", "target_modules"}
WITHOUT_EFFECT = {
    "task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision",
    "inference_mode", "runtime_config", "layers_pattern",
}  # fmt: skip


def lora_table(config: Any, model_type: str, problems: Problems) -> dict[str, Any]:
    """Return ``[lora]`` of a peft config.

    Args:
        config: as passed to TRL.
        model_type: of the model's config; decides the layers if the config names none.
        problems: gets what Truing does not train.
    """
    if type(config) is not LoraConfig:
        problems.add(
            "peft_config", type(config).__name__, "Truing trains LoRA adapters", "use peft.LoraConfig"
        )
        return {}
    plain = LoraConfig().to_dict()
    given = config.to_dict()
    others = {
        name: value
        for name, value in given.items()
        if name not in TRANSLATED | WITHOUT_EFFECT and value != plain.get(name)
    }
    if others:
        problems.add(
            "peft_config",
            ", ".join(f"{name}={value!r}" for name, value in others.items()),
            "Truing trains plain LoRA on linear layers (`truing explain lora`)",
            "leave these out",
        )
    targets = given["target_modules"] or TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model_type)
    if targets is None:
        problems.add(
            "peft_config",
            "target_modules=None",
            f"peft knows no default for {model_type}",
            'set target_modules="all-linear"',
        )
        targets = "all-linear"
    return {
        "rank": given["r"],
        "alpha": given["lora_alpha"],
        "dropout": given["lora_dropout"],
        "targets": targets if isinstance(targets, str) else sorted(targets),
    }
