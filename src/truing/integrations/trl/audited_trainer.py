"""What an audit reads of its trainer."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from truing.integrations.trl.processes import averages_exactly, holds_whole_weights
from truing.integrations.trl.setup import tokenizer_of
from truing.models.lora import trainable_parameters


class AuditedTrainer:
    """A trainer's weights and settings, as they are now; an audit of one kind overrides what differs."""

    trainer: Any

    @property
    def model(self) -> Any:
        """Return the trainer's model without what accelerate wraps it in."""
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    @property
    def reference_model(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """Return a context manager of the reference model; None if there is none."""
        return None

    @property
    def adds_noise(self) -> bool:
        """Whether the trainer adds noise to embeddings."""
        return bool(self.trainer.args.neftune_noise_alpha)

    @property
    def whole_weights(self) -> bool:
        """Whether each rank holds all weights, so that a plain forward and digests need no other."""
        return holds_whole_weights(self.trainer.accelerator)

    @property
    def gradient_is_sum(self) -> bool:
        """Whether the whole gradient comes from the log-probabilities of all ranks, by a plain average."""
        accelerator = self.trainer.accelerator
        plain = accelerator.scaler is None and averages_exactly(accelerator)
        return plain and not getattr(self.trainer, "aux_loss_enabled", False)

    @property
    def tokenizer(self) -> Any:
        """Return the trainer's tokenizer, also within a processor."""
        return tokenizer_of(self.trainer)

    @property
    def frozen_weights(self) -> dict[str, Tensor]:
        """Return the weights that are not trained, by name."""
        named = self.trainer.model.named_parameters()
        return {name: weight for name, weight in named if not weight.requires_grad}

    @property
    def reference_weights(self) -> dict[str, Tensor]:
        """Return the weights of a fixed reference, by name."""
        return {}

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the trained weights, by name."""
        return trainable_parameters(self.trainer.model)
