"""Sampler and trainer both count penalties on the prompt: ratios are 1, and no metric shows it."""

from contextlib import contextmanager

import torch

from dev.faults.fault import Fault, patched


def _scored(real):
    return lambda sample, t: sample.token_ids[:t]


def _begun(real):
    def begin(cls, request, sampling_params):
        row = real.__func__(cls, request, sampling_params)
        row.prompt = request.prompt_ids.tolist()
        return row

    return classmethod(begin)


def _drawn(real):
    def draw_ids(logits, rows, sampling_params):
        longest = max(len(row.prompt) for row in rows)
        table = [row.prompt + [-1] * (longest - len(row.prompt)) for row in rows]
        ids = torch.tensor(table)
        for n, row in enumerate(rows):
            for i in set(row.prompt) - set(row.ids):
                logits[n, i] -= sampling_params.presence_penalty * float((ids[n] == i).any())
        return real(logits, rows, sampling_params)

    return draw_ids


@contextmanager
def _both():
    with (
        patched("truing.models.forward.score:_generated", _scored),
        patched("truing.engines.base:ActiveRow.begin", _begun),
        patched("truing.engines.local.running_batch:draw_ids", _drawn),
    ):
        yield


FAULT = Fault(
    name="penalty-on-prompt-everywhere",
    numbers=(20,),
    what="sampler and trainer both count penalties on the prompt",
    plant=lambda: _both(),
    expected=("SMP004", "SMP005"),
    changes={"sampling.presence_penalty": 1.0},
)
