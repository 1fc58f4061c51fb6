"""Ids that the sampler returned, beside those that are trained on."""

from collections.abc import Iterator, Sequence

from truing.algos.flatten import turns_by_sample
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.learner.optimizer_step import computed_steps
from truing.measurements.measurement import Measurement
from truing.rollouts.step_samples import StepSamples
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.status import FinishReason


class SampledIds(Measurement):
    """Ids that the sampler returned, beside those that the first optimizer step trains on."""

    facts = ("ids",)
    metrics = ("alignment",)
    cost = "a comparison of ids"

    def after_step(self) -> Facts:
        """Return the first difference; nothing if there is none."""
        first = computed_steps(self.step.optimizer_steps)[0]
        ids = compare_ids(_id_pairs(self.step.samples, first.samples))
        self.numbers = alignment_metric(ids)
        return {"ids": ids} if ids["first"] else {}


def _id_pairs(step_samples: StepSamples, samples: Sequence[Sample]) -> Iterator[IdPair]:
    """Yield, for each sampled turn, the ids that the sampler returned and those trained on."""
    turns = {
        name: part
        for rollout in step_samples.rollouts.values()
        for name, part in turns_by_sample(rollout).items()
    }
    for sample in samples:
        for turn, span in zip(turns[sample.sample_id], sample.turns, strict=True):
            if span.finish_reason is not FinishReason.DEMO:
                trained_ids = sample.token_ids[span.start : span.end].tolist()
                yield IdPair(sample.sample_id, span.start, turn.token_ids.tolist(), trained_ids)
