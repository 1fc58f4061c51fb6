"""The arguments that all of TRL's configs have: those of transformers, and what TRL adds to them."""

import copy
import dataclasses
from typing import Any

from transformers import TrainingArguments

from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.fields import FIELDS

# one that a later version of transformers adds has no answer here, and is refused as unknown
_KNOWN = [each for each in dataclasses.fields(TrainingArguments) if each.name in FIELDS]

_OfTransformers = dataclasses.make_dataclass(
    "_OfTransformers",
    [(each.name, each.type, copy.copy(each)) for each in _KNOWN],
    bases=(TrlConfig,),
    repr=False,
)


@dataclasses.dataclass(repr=False)
class CommonArguments(_OfTransformers):
    """Of all three trainers, with TRL's defaults; tests/trl compares them with TRL."""

    bf16: bool | None = None
    gradient_checkpointing: bool = True
    logging_steps: float = 10
    model_init_kwargs: dict[str, Any] | str | None = None
    trust_remote_code: bool = False
    router_aux_loss_coef: float | None = None
    pad_to_multiple_of: int | str | None = "auto"

    def __post_init__(self) -> None:
        """Check types; as transformers does, a best metric is the smallest loss, or else the greatest."""
        super().__post_init__()
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith("loss")
