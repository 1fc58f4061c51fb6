"""rlprobe: fourteen signatures over a recording of curves."""

from typing import Any

import torch

from truing.faults.peers.curves import Curve, curves, renamed
from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage, Update

BUCKETS = 4
"""Buckets of positions in an answer: the fewest that its signature of positions accepts."""

NAMES = {
    "reward_mean": "reward/mean",
    "reward_std": "reward/std",
    "reward_min": "reward/min",
    "reward_max": "reward/max",
    "kl_mean": "kl_trained/k3",
    "entropy_mean": "entropy",
    "ratio_mean": "ratio/mean",
    "clip_fraction": "clip/clipped_share",
    "adv_mean": "advantage/mean",
    "adv_std": "advantage/std",
    "zero_variance_group_frac": "group/zero_variance_share",
    "value_loss": "loss/value",
    "value_explained_variance": "value/explained_variance",
    "loss": "loss/total",
    "lr": "lr",
    "grad_norm": "grad/norm",
    "completion_len_mean": "length/mean",
    "completion_len_max": "length/max",
    "truncation_rate": "truncated/share",
    "step_time_s": "seconds",
}


def feed(run: RecordedStage) -> dict[str, Any]:
    """Return a row of its recording per update, with the KL by position."""
    curves_of_run = curves(run)
    rows: list[dict[str, Any]] = []
    for update, each, named in zip(run.updates, curves_of_run, renamed(curves_of_run, NAMES), strict=True):
        rows.append(named | {"reward_components": _parts(each)} | _kl_by_position(update))
    return {"algorithm": run.stage, "steps": rows}


def _parts(each: Curve) -> dict[str, float]:
    prefix = "reward_part/"
    return {name.removeprefix(prefix): value for name, value in each.items() if name.startswith(prefix)}


def _kl_by_position(update: Update) -> dict[str, list[float]]:
    """Return the mean of k3 in each quarter of the positions of an answer, with a reference."""
    if "kl_trained/k3" not in update.step_row.metrics:
        return {}
    sums, counts = torch.zeros(BUCKETS), torch.zeros(BUCKETS)
    longest = int(update.step_row.metrics["length/max"])
    for each in update.rows:
        gap = (each.sample.ref_logprob - each.new_logprob)[each.sample.policy_mask]
        k3 = torch.expm1(gap) - gap
        bucket = torch.arange(len(k3)) * BUCKETS // longest
        known = k3.isfinite()
        sums.index_add_(0, bucket[known], k3[known])
        counts.index_add_(0, bucket[known], torch.ones(int(known.sum())))
    return {"kl_positional": (sums / counts.clamp(min=1)).tolist()}


PEER = Peer(
    "rlprobe",
    "a recording with every available field of its step record, including the KL in four buckets of position;"
    " `rlprobe.doctor.diagnose`",
    feed,
    causes={"REF_POLICY_DRIFT_ASYMMETRY": ("reference-of-other-prompt",)},
    cause_findings=("REWARD_HACK_LENGTH", "FORMAT_GAMING"),
)
