"""The recorded numbers of a run as curves, under a peer's names."""

from collections.abc import Mapping, Sequence

from truing.faults.peers.recorded import RecordedStage, Update

Curve = dict[str, float]
"""The numbers of one update by name; ``step`` counts from 1, and missing values are left out."""


def curves(run: RecordedStage) -> list[Curve]:
    """Return the metrics of each update by Truing's names, and a trainer's other logged numbers."""
    return [
        {"step": step, **each.step_row.metrics, **_besides(each)} for step, each in enumerate(run.updates, 1)
    ]


def _besides(update: Update) -> Curve:
    """Return seconds, extremes of the rewards, and the entropy, which draws may estimate."""
    metrics, rewards = update.step_row.metrics, update.rewards
    names = ("entropy/mean", "entropy/sampled")
    entropy = next(({"entropy": metrics[name]} for name in names if name in metrics), {})
    extremes = {"reward/min": min(rewards), "reward/max": max(rewards)} if rewards else {}
    return {"seconds": sum(update.step_row.seconds.values())} | extremes | entropy


def renamed(per_update: Sequence[Curve], names: Mapping[str, str]) -> list[Curve]:
    """Return curves with the names of a peer, which are the keys of ``names``."""
    return [
        {"step": each["step"], **{theirs: each[ours] for theirs, ours in names.items() if ours in each}}
        for each in per_update
    ]
