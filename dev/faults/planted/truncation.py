"""Truncations and penalties that are wrong in the sampler and in the trainer alike."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS

LONGER = {"sft.steps": 10, "sampling.max_new_tokens": 12}


def _kept(keep):
    """Truncate to the ids of ``keep``, which gets the truncation, the scores and the parameters."""

    def make(real):
        def truncate(scores_NV, sampling_params):
            kept_NV = keep(real, scores_NV.detach(), sampling_params)
            return scores_NV.masked_fill(~kept_NV, -torch.inf)

        return truncate

    return patched("truing.ops.sampling:_truncate", make)


def _before_temperature(real, scores_NV, params):
    return real(scores_NV * params.temperature, params) > -torch.inf


TOP_P_BEFORE_TEMPERATURE = Fault(
    name="top-p-before-temperature",
    numbers=(114,),
    what="sampler and trainer choose the nucleus before they divide by the temperature",
    plant=lambda: _kept(_before_temperature),
    expected=("SMP004",),
    changes=LONGER | {"sampling.top_p": 0.9, "sampling.temperature": 1.4},
)


MIN_P_ABSOLUTE = Fault(
    name="min-p-absolute",
    numbers=(114,),
    what="sampler and trainer read min-p as a probability, not as a share of the largest",
    plant=lambda: _kept(
        lambda real, scores_NV, params: (
            (scores_NV.softmax(1) >= params.min_p) | (scores_NV == scores_NV.amax(1, keepdim=True))
        )
    ),
    expected=("SMP004",),
    changes=LONGER | {"sampling.min_p": 0.1},
)


NUCLEUS_WITHOUT_ITS_LAST = Fault(
    name="nucleus-without-its-last",
    numbers=(114,),
    what="the nucleus leaves out the id that reaches its mass",
    plant=lambda: patched(
        "truing.ops.sampling:_nucleus",
        lambda real: (
            lambda scores_NV, top_p, *width: (
                real(scores_NV, top_p) & ~_last(scores_NV, real(scores_NV, top_p))
                | (scores_NV == scores_NV.amax(1, keepdim=True))
            )
        ),
    ),
    expected=("SMP004",),
    changes=LONGER | {"sampling.top_p": 0.9},
)


def _last(scores_NV, kept_NV):
    least_N1 = scores_NV.masked_fill(~kept_NV, torch.inf).amin(1, keepdim=True)
    return kept_NV & (scores_NV == least_N1)


def _one_more(real, scores_NV, params):
    return real(scores_NV, replace(params, top_k=params.top_k + bool(params.top_k))) > -torch.inf


ONE_MORE_THAN_TOP_K = Fault(
    name="one-more-than-top-k",
    numbers=(114,),
    what="sampler and trainer keep k + 1 ids",
    plant=lambda: _kept(_one_more),
    expected=("SMP004",),
    changes=LONGER | {"sampling.top_k": 8},
)


ONE_MORE_THAN_TOP_K_OF_A_GRAMMAR = Fault(
    name="one-more-than-top-k-of-a-grammar",
    numbers=(114,),
    what="of the ids that a grammar allows, sampler and trainer keep k + 1",
    plant=lambda: _kept(_one_more),
    expected=("SMP004",),
    changes={**CALLS, "sampling.top_k": 8},
)


def _penalized(change):
    """Penalize other ids than were generated; ``change`` gets those of one row."""

    def make(real):
        def apply_penalties(scores_NV, sampling_params, generated_NH):
            rows = [torch.tensor(change(row[row >= 0].tolist()), dtype=torch.long) for row in generated_NH]
            table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
            return real(scores_NV, sampling_params, table.to(scores_NV.device))

        return apply_penalties

    return patched("truing.ops.sampling:_apply_penalties", make)


FREQUENCY_COUNTS_ONCE = Fault(
    name="frequency-counts-once",
    numbers=(114,),
    what="the frequency penalty counts each id once, in sampler and trainer",
    plant=lambda: _penalized(lambda ids: sorted(set(ids))),
    expected=("SMP005",),
    changes=LONGER | {"sampling.frequency_penalty": 0.5, "sampling.max_new_tokens": 24},
)


LAST_ID_NOT_PENALIZED = Fault(
    name="last-id-not-penalized",
    numbers=(114,),
    what="penalties leave out the id that was just generated, in sampler and trainer",
    plant=lambda: _penalized(lambda ids: ids[:-1]),
    expected=("SMP005",),
    changes=LONGER | {"sampling.presence_penalty": 0.7, "eval.tasks": 0},
)
