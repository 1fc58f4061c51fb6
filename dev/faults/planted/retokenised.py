"""Answers are decoded and encoded again before training: some ids change."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        ids = original.token_ids.clone()
        first = original.turns[0].start
        ids[first] = (ids[first] + 1) % 200
        return replace(original, token_ids=ids)

    return sample


FAULT = Fault(
    name="retokenised",
    numbers=(9, 10),
    what="answers are re-encoded, and an id changes",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _wrong),
    expected=("TOK001",),
)
