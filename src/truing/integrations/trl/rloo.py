"""An audit of TRL's ``RLOOTrainer``."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from truing.integrations.trl.grpo import GrpoAudit
from truing.integrations.trl.setup import setup_of_rloo


class RlooAudit(GrpoAudit):
    """Audits a trainer whose loss has one ratio per answer, and whose KL is in the reward.

    Its batches have the old log-probability of whole answers only: those of tokens, and of the reference, are
    recorded when the trainer computes them.
    """

    stage: ClassVar[str] = "rloo"
    required_attributes = (*GrpoAudit.wrapped_methods, "normalize_advantages")
    declared = staticmethod(setup_of_rloo)

    def __init__(self, trainer: Any, **options: Any) -> None:
        self.scored: list[Tensor] = []  # of a generation: log-probabilities of the policy, of the reference
        super().__init__(trainer, **options)

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether the loss has a bonus on the entropy."""
        return False

    def answers_of(self, generated: Any) -> Sequence[list[int]]:
        """Return the sampled ids of what the sampler returns."""
        return generated

    def after_logprobs(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the log-probabilities of a loss, or those of a generation."""
        out = super().after_logprobs(real, *args, **kwargs)
        if not self.open_micro_batches:
            self.scored.append(out[0].detach())
        return out

    def after_generation(self, real: Any, inputs: Any) -> Any:
        """Record a generation, and give its batch the log-probabilities of tokens."""
        self.scored = []
        batch = super().after_generation(real, inputs)
        names = ("old_per_token_logps", "ref_per_token_logps")
        return batch | dict(zip(names, self.scored, strict=False))

    def _total(self, by_function: Tensor) -> Tensor:
        """Return the rewards of rows, [B] float64, clipped as declared; NaN without a reward."""
        total, limits = super()._total(by_function), self.trainer.reward_clip_range
        return total.clamp(*limits) if limits else total
