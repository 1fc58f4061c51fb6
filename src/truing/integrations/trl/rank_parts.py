"""What each rank has of a step, joined to the facts of all."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truing.integrations.trl.example_counts import Example, shared_examples
from truing.integrations.trl.rows import Rows
from truing.integrations.trl.sample_usage import Usage

STREAMS = ("trainer", "sampler", "old", "reference")
"""Compared with a plain forward."""


@dataclass(frozen=True)
class RankPart:
    """Rows and facts of one rank in a step."""

    rows: Rows
    facts: Mapping[str, Any]
    state: Mapping[str, Any]  # what all ranks must share, as in ``measurements/rank_facts.py``
    norm: float  # of the gradient, before clipping
    examples: Mapping[str, Example]  # by the row's name
    usage: Mapping[int, Usage] = field(default_factory=dict[int, Usage])  # by generation


def joined_facts(parts: Sequence[RankPart]) -> dict[str, Any]:
    """Return the facts of all ranks: those of the first, or joined ones."""
    facts = dict(parts[0].facts)
    for name, join in JOINED.items():
        if known := [part.facts[name] for part in parts if name in part.facts]:
            facts[name] = join(known)
    return facts


def _plain(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the differences of the rank with the largest one, and the rows and tokens of all."""
    largest = max(each, key=lambda plain: max((plain.get(name, 0.0) for name in STREAMS), default=0.0))
    return {**largest, **{name: sum(plain[name] for plain in each) for name in ("rows", "tokens")}}


def _audit(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the bets on the draws of all ranks, and their replays."""
    names = {name for audit in each for name in audit["gains"]}
    gains = {
        name: [
            sum(gains) for gains in zip(*(a["gains"][name] for a in each if name in a["gains"]), strict=True)
        ]
        for name in sorted(names)
    }
    joined = {"tokens": sum(audit["tokens"] for audit in each), "gains": gains}
    if replays := [audit["replay"] for audit in each if "replay" in audit]:
        worst = max(replays, key=lambda replay: replay["largest"])
        sums = {name: sum(replay[name] for replay in replays) for name in ("tokens", "missed")}
        joined["replay"] = {**worst, **sums}
    return joined


JOINED: Mapping[str, Callable[[Sequence[Any]], Any]] = {"plain": _plain, "audit": _audit}
"""Facts that ranks measure on their own rows."""


def rank_facts(parts: Sequence[RankPart], copies: Callable[[str], float]) -> dict[str, Any]:
    """Return the fact ``ranks`` of a step; empty with one rank.

    Args:
        parts: of all ranks.
        copies: returns how often the dataset has an example.
    """
    if len(parts) == 1:
        return {}
    names = dict.fromkeys(name for part in parts for name in part.state)
    return {
        "ranks": {
            "state": {name: [part.state.get(name, "") for part in parts] for name in names},
            "norms": [[[part.norm]] for part in parts],
            "rows": [_row_fact(parts, copies)],
        }
    }


def _row_fact(parts: Sequence[RankPart], copies: Callable[[str], float]) -> dict[str, Any]:
    """Return the rows of each rank, and those that several computed."""
    of_rank = [[row.sample_id for row in part.rows.samples] for part in parts]
    counts = Counter(name for names in of_rank for name in set(names))
    twice = [
        [name, [rank for rank, names in enumerate(of_rank) if name in names]]
        for name, ranks in counts.items()
        if ranks > 1
    ]
    # a row on two ranks has one example there, too
    shared = [] if twice else shared_examples([part.examples for part in parts], copies)
    return {
        "due": len(counts),
        "missing": [],
        "missing_count": 0,
        "idle": [],
        "twice": twice[:3],
        "twice_count": len(twice),
        "shared": shared[:3],
        "shared_count": len(shared),
        "of_rank": of_rank,
    }
