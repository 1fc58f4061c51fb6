"""Check of reference syncs: one weight of the reference, recomputed by the declared formula."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from truing.learner.learner import Learner
from truing.measurements.adamw_float64 import STRIDE, first_entries
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts


class ReferenceSync(Measurement):
    """One weight of the reference around the sync before this step, by the declared formula."""

    facts = ("reference_sync",)
    cost = "4,096 entries of one weight"

    def after_step(self) -> Facts:
        """Return what was measured since the step before."""
        return self.step.since_last


@contextmanager
def reference_sync_fact(learner: Learner, done: int, facts: Facts) -> Iterator[None]:
    """Add the fact ``reference_sync`` to ``facts``, if the recipe declares syncs; the block runs the sync.

    θ_ref must become keep · θ_ref + (1 − keep) · θ every ``sync_every`` steps and stay unchanged otherwise
    (https://arxiv.org/abs/1509.02971 §3). ``done`` is the number of steps done.
    """
    cfg = learner.reference_cfg
    if learner.reference is None or not cfg.sync_every:
        yield
        return
    names = sorted(learner.parameters)
    name = names[done * STRIDE % len(names)]
    before, policy = (
        first_entries(table[name]) for table in (learner.reference.synced_weights(), learner.parameters)
    )
    yield
    due = done % cfg.sync_every == 0
    expected = torch.lerp(policy, before, cfg.keep) if due else before
    held = learner.reference.synced_weights()[name].dtype
    if held != learner.parameters[name].dtype:  # a copy in bfloat16 of float32 weights
        expected = expected.to(held).double()
    after = first_entries(learner.reference.synced_weights()[name])
    facts["reference_sync"] = {
        "weight": name,
        "due": due,
        "moved": float((after - before).abs().max()),
        "apart": float((policy - before).abs().max()),  # policy and reference before the sync
        "largest": float((after - expected).abs().max()),
        "rounding": float(torch.finfo(learner.parameters[name].dtype).eps * policy.abs().max()),
        "left": learner.reference.digest,
    }
