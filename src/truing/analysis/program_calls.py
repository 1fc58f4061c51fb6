"""The calls of a program's rollout as a tree: which call continues which, and which sample trains on it."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truing.types.step_table import StepTable


class CallLine(NamedTuple):
    """One call of a rollout."""

    call: int  # its number, from 1
    depth: int  # how many calls it continues, one after the other
    sample_id: str  # that has its answer; "" if no sample has it
    words: str  # what is noted of it


def call_tree(table: StepTable, index: int) -> list[CallLine]:
    """Return the calls of the rollout of a sample, each below the one that it continues."""
    sample = table.samples[index]
    notes = sample.outcome.get("calls") if any(turn.call for turn in sample.turns) else None
    if not isinstance(notes, list):
        return []
    sample_of = {
        turn.call: each.sample_id
        for each in table.samples
        if each.rollout_id == sample.rollout_id
        for turn in each.turns
    }
    return list(_below(0, 0, notes, sample_of))


def _below(
    parent: int, depth: int, notes: list[Mapping[str, Any]], sample_of: Mapping[int, str]
) -> Iterator[CallLine]:
    """Yield the calls that continue one, and what continues them."""
    for note in notes:
        if note.get("continues", 0) == parent:
            call = note["call"]
            yield CallLine(call, depth, sample_of.get(call, ""), ", ".join(_words(note)))
            yield from _below(call, depth + 1, notes, sample_of)


def _words(note: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the record notes of a call."""
    if "restart" in note:
        yield note["restart"]
    if "written_differently" in note:
        yield f"the client wrote earlier answers differently: {', '.join(note['written_differently'])}"
    if "overridden" in note:
        yield f"asked for {', '.join(note['overridden'])}, which the recipe overrides"
    for kind, words in (
        ("unanswered", "no answer: the program ended first"),
        ("undelivered", "no client got the answer"),
        ("untrained", "not trained"),
    ):
        if kind in note:
            yield words
