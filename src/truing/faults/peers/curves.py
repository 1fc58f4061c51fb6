"""The recorded numbers of a run as curves, under a peer's names."""

from collections.abc import Mapping, Sequence

from truing.faults.peers.recorded import Recorded

Curve = dict[str, float]
"""The numbers of one update by name; ``step`` counts from 1, and what was not recorded is left out."""


def curves(run: Recorded) -> list[Curve]:
    """The metrics of each update by Truing's names, with its seconds, and the extremes of its rewards."""
    found: list[Curve] = []
    for number, update in enumerate(run.updates, 1):
        rewards = update.rewards
        extremes = {"reward/min": min(rewards), "reward/max": max(rewards)} if rewards else {}
        seconds = sum(update.line.seconds.values())
        found.append({"step": number, **update.line.metrics, **extremes, "seconds": seconds})
    return found


def renamed(found: Sequence[Curve], names: Mapping[str, str]) -> list[Curve]:
    """Curves with the names of a peer, which are the keys of ``names``."""
    return [
        {"step": each["step"], **{theirs: each[ours] for theirs, ours in names.items() if ours in each}}
        for each in found
    ]
