"""Old log-probabilities and ratios."""

from collections import defaultdict
from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from truing.models.forward.collate import collate
from truing.models.forward.score import score


def _clip_share_without_sign(real):
    return lambda ratio, advantage, low, high: (ratio > 1 + high) | (ratio < 1 - low)


CLIP_SHARE_WITHOUT_SIGN = Fault(
    name="clip-share-without-sign",
    numbers=(59,),
    what="the clipped share ignores the sign of the advantage",
    plant=lambda: patched("truing.metrics.step:clip_mask", _clip_share_without_sign),
    expected=("RAT006",),
    changes={"grpo.inner_epochs": 4, "grpo.learning_rate": 0.01, "sft.steps": 10},
)


def _dropout_on(real):
    def add_lora(*args, **kwargs):
        return real(*args, **kwargs | {"dropout": 0.3})

    return add_lora


DROPOUT_ON = Fault(
    name="dropout-on",
    numbers=(35,),
    what="the adapter has dropout that the recipe does not declare",
    plant=lambda: patched("truing.models.load_policy:add_lora", _dropout_on),
    expected=("RAT002", "OPT009"),
    changes={"lora.rank": 4, "sft.steps": 10, "sft.learning_rate": 0.03},
)


def _zeros(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        return replace(original, old_logprob=torch.zeros_like(original.old_logprob))

    return sample


OLD_LOGPROBS_ZERO = Fault(
    name="old-logprobs-zero",
    numbers=(30,),
    what="old log-probabilities are filled in with zeros by a wrong key",
    plant=lambda: patched("truing.algos.flatten:_sample", _zeros),
    expected=("RAT001",),
)


def _old_noisy(real):
    def with_old(samples, learner):
        noise = torch.Generator().manual_seed(0)
        return [
            replace(row, old_logprob=row.old_logprob + 0.3 * torch.randn(len(row), generator=noise))
            for row in real(samples, learner)
        ]

    return with_old


OLD_NOISY = Fault(
    name="old-noisy",
    numbers=(35,),
    what="old log-probabilities come from a forward with noise",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _old_noisy),
    expected=("RAT008",),
    changes={"correction.method": "truncate"},
)


def _old_recomputed(real):
    def accumulate(learner, minibatch, *args):
        batch = collate(minibatch)
        with torch.no_grad():
            now = score(learner.model, batch, batch.policy_mask).logprob
        fresh = [
            replace(sample, old_logprob=torch.where(sample.policy_mask, now[b, : len(sample)], torch.nan))
            for b, sample in enumerate(minibatch)
        ]
        return real(learner, fresh, *args)

    return accumulate


OLD_RECOMPUTED = Fault(
    name="old-recomputed",
    numbers=(31,),
    what="old log-probabilities are recomputed with the current weights at every optimizer step",
    plant=lambda: patched("truing.learner.step:accumulate_gradients", _old_recomputed),
    expected=("RAT003", "RAT007"),
    changes={"grpo.inner_epochs": 3, "sft.steps": 10},
)


def _old_scaled(real):
    def with_old(samples, learner):
        return [replace(sample, old_logprob=sample.old_logprob * 0.8) for sample in real(samples, learner)]

    return with_old


OLD_SCALED = Fault(
    name="old-scaled",
    numbers=(17,),
    what="old log-probabilities are divided by a temperature",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _old_scaled),
    expected=("RAT007", "RAT002"),
)


def _old_shifted(real):
    def with_old(samples, learner):
        def late(sample):
            moved = sample.old_logprob.roll(1)
            known = torch.where(moved.isnan(), sample.old_logprob, moved)
            return replace(sample, old_logprob=torch.where(sample.policy_mask, known, torch.nan))

        return [late(sample) for sample in real(samples, learner)]

    return with_old


OLD_SHIFTED = Fault(
    name="old-shifted",
    numbers=(3, 33),
    what="old log-probabilities are shifted by one token",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _old_shifted),
    expected=("RAT004",),
    changes={"sampling.max_new_tokens": 8},
)


def _rows_permuted(real):
    def with_old(samples, learner):
        alike = defaultdict(list)
        for sample in real(samples, learner):
            alike[len(sample), sample.prompt_length].append(sample)
        moved = {
            sample.sample_id: replace(sample, old_logprob=other.old_logprob)
            for each in alike.values()
            for sample, other in zip(each, [*each[1:], each[0]], strict=True)
        }
        return [moved[sample.sample_id] for sample in samples]

    return with_old


ROWS_PERMUTED = Fault(
    name="rows-permuted",
    numbers=(33,),
    what="old log-probabilities are those of other rows",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _rows_permuted),
    expected=("RAT005",),
)
