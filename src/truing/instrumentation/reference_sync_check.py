"""Whether a reference follows the policy as it is declared to: one weight of it, computed a second time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from truing.instrumentation.adamw_float64 import first_entries
from truing.learner.learner import Learner


@contextmanager
def reference_sync_fact(learner: Learner, done: int, facts: dict[str, Any]) -> Iterator[None]:
    """Add the fact ``follow`` to ``found``, where the recipe declares syncs: they are made within the block.

    θ_ref is to become keep · θ_ref + (1 − keep) · θ after each so many steps, and to stay as it is after all
    others (https://arxiv.org/abs/1509.02971 §3). ``done`` is how many were made.
    """
    cfg = learner.reference_cfg
    if learner.reference is None or not cfg.sync_every:
        yield
        return
    names = sorted(learner.parameters)
    name = names[done * 7919 % len(names)]
    was, policy = (
        first_entries(table[name]) for table in (learner.reference.synced_weights(), learner.parameters)
    )
    yield
    due = done % cfg.sync_every == 0
    expected = torch.lerp(policy, was, cfg.keep) if due else was
    now = first_entries(learner.reference.synced_weights()[name])
    facts["follow"] = {
        "weight": name,
        "due": due,
        "moved": float((now - was).abs().max()),
        "apart": float((policy - was).abs().max()),  # policy and reference, before
        "largest": float((now - expected).abs().max()),
        "rounding": float(torch.finfo(learner.parameters[name].dtype).eps * policy.abs().max()),
    }
