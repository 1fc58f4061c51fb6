"""The vLLM that samples for a TRL trainer: which weights it was sent last, and its precision."""

from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import is_peft_model

from truing.integrations.trl.wrap import wrapped
from truing.measurements.weight_digests import rotating_slice
from truing.models.digest import joint_sum, quick_sums

if TYPE_CHECKING:
    from truing.integrations.trl.base import Audit


class VllmEngine:
    """Records the weights of each sync; they are those that TRL sends, and not those that vLLM loads."""

    def __init__(self, audit: "Audit") -> None:
        self.audit, self.generation = audit, audit.trainer.vllm_generation
        self.synced: tuple[int, str] | None = None  # optimizer steps before the last sync, digest
        self.generation.sync_weights = wrapped(self.generation, "sync_weights", self.after_sync)

    def after_sync(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the weights that are sent."""
        out = real(*args, **kwargs)
        if is_peft_model(self.audit.trainer.model):  # merging an adapter and taking it out rounds the base
            self.audit.fixed_digests.pop("frozen", None)
        if self.audit.whole_weights:
            done = self.audit.trainer.state.global_step
            self.synced = done, joint_sum(quick_sums(rotating_slice(self.audit.parameters, done)))
        return out

    @property
    def dtype(self) -> torch.dtype | None:
        """The precision of a vLLM in this process, unless it is quantized; a server's is not known."""
        llm = getattr(self.generation, "llm", None)
        if llm is None or llm.llm_engine.model_config.quantization is not None:
            return None
        return llm.llm_engine.model_config.dtype
