"""Which sampled tokens are drawn again from the trainer's distribution, to check the sampler's draws."""

from collections.abc import Sequence

from torch import Tensor, nn

from truing.config import PolicyStage
from truing.learner.learner import Learner
from truing.models.forward.score import causal_model, computed_precision
from truing.types.batch import Batch
from truing.types.sample import Sample
from truing.utils.rng import seed_of

MAX_REPLAYED_ENTRIES = 16_000_000
"""Tokens × vocabulary whose draws a step replays, some 20 ms: 325 tokens × 49,152 ids."""


def replay_mask(learner: Learner, samples: Sequence[Sample], batch: Batch) -> Tensor | None:
    """Return the sampled tokens of a batch whose draws are replayed: [B, T] bool; None if the step has none.

    Only before the first update are the weights those of the sampler, and only in float32 on the CPU do both
    agree to the last digits. A fixed number of entries per step bounds the time; the offset changes from step
    to step, so other positions are replayed.

    Args:
        learner: before the first update of the step.
        samples: of the first minibatch of the step.
        batch: a micro-batch of them.
    """
    causal = causal_model(learner.model)
    policy = isinstance(learner.setting.stage, PolicyStage)
    if not policy or computed_precision(learner.model) != "cpu" or _has_dropout(learner.model):
        return None
    tokens = sum(int(sample.kl_mask.sum()) for sample in samples)
    stride = -(-tokens * causal.config.get_text_config().vocab_size // MAX_REPLAYED_ENTRIES) or 1
    offset = seed_of(samples[0].sample_id, "replayed") % stride
    return batch.kl_mask & (
        (batch.kl_mask.flatten().cumsum(0).view(batch.kl_mask.shape) + offset) % stride == 0
    )


def _has_dropout(model: nn.Module) -> bool:
    """Return whether dropout is active, which makes a forward random."""
    return any(
        isinstance(module, nn.Dropout) and module.training and module.p > 0 for module in model.modules()
    )
