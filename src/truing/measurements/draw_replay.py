"""Draws of the sampler, replayed with the distribution that the step's own forward computes."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from truing.config import PolicyStage
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.measurement import Measurement
from truing.measurements.race_replay import turn_key
from truing.models.forward.score import causal_model, computed_precision
from truing.types.batch import Batch
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.types.token_facts import Draws
from truing.utils.rng import seed_of, uniforms

MAX_REPLAYED_ENTRIES = 16_000_000
"""Tokens × vocabulary whose draws a step replays, some 20 ms: 325 tokens × 49,152 ids."""


class ReplayedDraws(Measurement):
    """Sampled tokens, drawn again from the distribution of the step's own forward with their random numbers.

    Of an engine that inverts a cumulative distribution, as Truing's own does; in float32 on the CPU.
    """

    facts = ("draws",)
    cost = "sums over at most 16 million probabilities of the step's own forward"

    def mass_below_mask(self, this: OptimizerStep, batch: Batch) -> Tensor | None:
        """Return the tokens that are drawn again: they belong to the first optimizer step."""
        return replay_mask(self.step.learner, this.samples, batch) if this.index == 0 else None

    def after_step(self) -> Facts:
        """Return the tokens that do not follow from their random numbers."""
        if self.step.sampler.engine.draws != "inversion":
            return {}
        first = self.step.optimizer_steps[0]
        fact = draw_fact(first, first.samples, self.step.all_samples)
        return {"draws": fact} if fact else {}


def replay_mask(learner: Learner, samples: Sequence[Sample], batch: Batch) -> Tensor | None:
    """Return the sampled tokens of a batch whose draws are replayed: [B, T] bool; None if the step has none.

    Only before the first step are the weights those of the sampler, and only in float32 on the CPU do both
    agree to the last digits. A fixed number of entries per step bounds the time; the offset changes from step
    to step, so other positions are replayed.

    Args:
        learner: before the first step of the step.
        samples: of the first minibatch of the step.
        batch: a micro-batch of them.
    """
    causal = causal_model(learner.model)
    policy = isinstance(learner.setting.stage, PolicyStage)
    if not policy or computed_precision(learner.model) != "cpu" or has_active_dropout(learner.model):
        return None
    tokens = sum(int(sample.kl_mask.sum()) for sample in samples)
    stride = -(-tokens * causal.config.get_text_config().vocab_size // MAX_REPLAYED_ENTRIES) or 1
    offset = seed_of(samples[0].sample_id, "replayed") % stride
    return batch.kl_mask & (
        (batch.kl_mask.flatten().cumsum(0).view(batch.kl_mask.shape) + offset) % stride == 0
    )


def has_active_dropout(model: nn.Module) -> bool:
    """Return whether dropout is active, which makes a forward random."""
    return any(
        isinstance(module, nn.Dropout) and module.training and module.p > 0 for module in model.modules()
    )


def draw_fact(first: OptimizerStep, replayed: Sequence[Sample], rows: Sequence[Sample]) -> Draws | None:
    """Return how far random numbers are from the tokens' probability intervals, by the step's own forward.

    Args:
        first: the first optimizer step.
        replayed: samples of its minibatch.
        rows: all samples of the step.

    Returns:
        The fact ``draws``; None if no token is replayed.
    """
    numbers, tokens, missed = draw_numbers(rows), 0, 0
    largest, where = 0.0, ("", 0)
    if "probability_below" not in first.streams:
        return None
    for row in replayed:
        below_T = first.stream("probability_below", row).double()
        size_T = first.stream("new_logprob", row).double().exp()
        uniform_T = torch.full_like(below_T, torch.nan)
        for k, turn in zip(numbers[row.sample_id], row.turns, strict=True):
            uniform_T[turn.start : turn.end] = uniforms(turn.end - turn.start, *turn_key(row, k))
        miss_T = torch.stack([below_T - uniform_T, uniform_T - below_T - size_T]).amax(0).clamp(min=0.0)
        replayed_T = ~miss_T.isnan() & sampled_mask(row)
        if replayed_T.any():
            tokens += int(replayed_T.sum())
            missed += int((miss_T[replayed_T] > TOLERANCE).sum())
            worst = int(torch.where(replayed_T, miss_T, -1.0).argmax())
            if float(miss_T[worst]) >= largest:
                largest, where = float(miss_T[worst]), (row.sample_id, worst)
    if not tokens:
        return None
    return {"tokens": tokens, "missed": missed, "largest": largest, "where": where}


def draw_numbers(rows: Sequence[Sample]) -> dict[str, list[int]]:
    """Return by row the numbers of its turns in the keys of their random numbers, from 0.

    They count the turns of a rollout, which may be split into several rows; of a program its calls.
    """
    turns = Counter[str]()
    numbers: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.number):
        first = turns[row.rollout_id]
        numbers[row.sample_id] = [
            turn.call - 1 if turn.call else number for number, turn in enumerate(row.turns, first)
        ]
        turns[row.rollout_id] += len(row.turns)
    return numbers


def sampled_mask(row: Sample) -> Tensor:
    """Return the sampled tokens with a recorded log-probability: [T] bool."""
    return (row.origin == Origin.SAMPLED) & ~row.sampler_logprob.isnan()
