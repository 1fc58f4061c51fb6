"""The recorded numbers of a run as curves, under a peer's names."""

from collections.abc import Mapping, Sequence

from truing.record import RunReader, StepRow
from truing.record.store import load_rows

Curve = dict[str, float]
"""The numbers of one update by name; ``step`` counts from 1, and what was not recorded is left out."""


def last_stage(reader: RunReader) -> list[StepRow]:
    """The updates of the last stage of the recipe; demonstrations come before and are no RL."""
    stage = reader.run()["recipe"]["stages"][-1]
    return [row for row in reader.steps() if row.stage == stage]


def curves(reader: RunReader) -> list[Curve]:
    """The metrics of each update by Truing's names, with its seconds, and the extremes of its rewards."""
    found: list[Curve] = []
    for number, row in enumerate(last_stage(reader), 1):
        rewards = rewards_of(reader, row)
        extremes = {"reward/min": min(rewards), "reward/max": max(rewards)} if rewards else {}
        found.append({"step": number, **row.metrics, **extremes, "seconds": sum(row.seconds.values())})
    return found


def rewards_of(reader: RunReader, row: StepRow) -> list[float]:
    """The reward of each attempt of an update that has one."""
    samples = (each.sample for each in load_rows(reader.run_dir, row))
    by_rollout = {sample.rollout_id: sample.reward for sample in samples}
    return [reward for reward in by_rollout.values() if reward == reward]


def renamed(found: Sequence[Curve], names: Mapping[str, str]) -> list[Curve]:
    """Curves with the names of a peer, which are the keys of ``names``."""
    return [
        {"step": each["step"], **{theirs: each[ours] for theirs, ours in names.items() if ours in each}}
        for each in found
    ]
