"""Compares two runs: configuration differences, and the first step, sample and token that differ."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truing.analysis.incremental_reader import IncrementalReader
from truing.analysis.paired_difference import Gain, gain_lines, paired_gains, seed_note
from truing.analysis.side_by_side import ComparedValue, side_by_side, side_by_side_lines
from truing.config.secrets import without_secrets
from truing.record.malformed import as_record_error
from truing.types.sample import MASKS
from truing.types.step_table import StepTable
from truing.utils.format import with_count

STREAMS = (
    "token_ids",
    "origin",
    "sampler_logprob",
    *MASKS,
    "old_logprob",
    "ref_logprob",
    "value",
    "advantage",
    "returns",
    "new_logprob",
    "entropy",
    "raw_entropy",
    "token_gradient",
)
"""In order of computation: the first that differs is closest to the cause."""

COMPARED_FACTS = ("model.digest", "trainable_digest", "judged.tasks_hash", "versions", "machine")
"""Facts of run.json that are compared besides the recipe."""


@dataclass(frozen=True)
class Delta:
    """A key and its value in each run."""

    key: str
    first: Any
    second: Any


@dataclass(frozen=True)
class StepDifference:
    """The first difference of two steps that should be equal."""

    stage: str
    step: int
    what: str  # a stream, or a property of samples or facts
    first: Any
    second: Any
    sample_id: str = ""
    token: int | None = None
    tokens: int = 0  # differing tokens of that stream and sample


@dataclass(frozen=True, eq=False)
class TextDifference:
    """A sample of one task in both runs, and its first token that differs."""

    tables: tuple[StepTable, StepTable]
    samples: tuple[int, int]  # its index in each
    token: int


@dataclass(frozen=True)
class Comparison:
    """Everything that differs."""

    recipe: tuple[Delta, ...]
    facts: tuple[Delta, ...]
    same_steps: int  # before the first difference
    first_difference: StepDifference | None
    beside: tuple[ComparedValue, ...] = ()  # results, if the runs differ
    gains: tuple[Gain, ...] = ()  # shared evaluations, second − first
    seeds: str = ""  # a note about the seeds

    @property
    def seeds_differ(self) -> bool:
        """Whether the seeds differ, so that samples differ from the start."""
        return any(each.key == "seed" for each in self.recipe)

    @property
    def differs(self) -> bool:
        """Whether anything but the machine differs."""
        return bool(self.recipe or self.first_difference)


def compare(first: Path, second: Path) -> Comparison:
    """Compare two run directories: recipes, facts, then step by step, bit for bit."""
    runs = IncrementalReader(first), IncrementalReader(second)
    for each in runs:
        each.refresh()
    with as_record_error(f"{first} or {second}"):
        recipe, facts = config_differences(*runs)
        same_steps, difference = first_difference(*runs)
        results = () if difference is None else side_by_side(*runs)
        gains = paired_gains(*runs)
        return Comparison(recipe, facts, same_steps, difference, results, gains, seed_note(*runs))


def config_differences(
    first: IncrementalReader, second: IncrementalReader
) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
    """Return the differences of two recipes, and of the other facts."""
    facts_of = [dict(run.run_json) for run in (first, second)]
    recipes = [flatten(each.pop("recipe")) for each in facts_of]
    facts = [
        {key: x for key, x in flatten(each).items() if key.startswith(COMPARED_FACTS)} for each in facts_of
    ]
    return _deltas(*recipes), _deltas(*facts)


def first_difference(
    first: IncrementalReader, second: IncrementalReader, max_steps: int | None = None
) -> tuple[int, StepDifference | None]:
    """Return the number of equal steps and the first difference, within ``max_steps``."""
    counts = [len(run.columns) for run in (first, second)]
    shorter = min(counts)
    limit = shorter if max_steps is None else min(max_steps, shorter)
    for index in range(limit):
        row, other = (run.step_row(index) for run in (first, second))
        if (row.stage, row.step) != (other.stage, other.step):
            places = [f"{each.stage} {each.step + 1}" for each in (row, other)]
            return index, StepDifference(row.stage, row.step, "order of steps", places[0], places[1])
        if difference := _step_difference(first.table(row), second.table(other)):
            return index, difference
    if limit == shorter and counts[0] != counts[1]:
        longer = max((first, second), key=lambda run: len(run.columns)).step_row(shorter)
        return shorter, StepDifference(longer.stage, longer.step, "number of steps", counts[0], counts[1])
    return limit, None


def first_text_difference(
    first: IncrementalReader, second: IncrementalReader, start: int, max_steps: int
) -> TextDifference | None:
    """Return the first sample of one name and task whose tokens differ, among steps from ``start`` on."""
    end = min(start + max_steps, len(first.columns), len(second.columns))
    for index in range(start, end):
        pair = [run.step_row(index) for run in (first, second)]
        locations = [(row.stage, row.step) for row in pair]
        if locations[0] != locations[1]:
            return None
        table, second_table = first.table(pair[0]), second.table(pair[1])
        second_by_id = {(each.sample_id, each.task_id): i for i, each in enumerate(second_table.samples)}
        for here, sample in enumerate(table.samples):
            there = second_by_id.get((sample.sample_id, sample.task_id))
            if there is not None and (
                difference := _stream_difference("token_ids", table, here, second_table, there)
            ):
                assert difference.token is not None
                return TextDifference((table, second_table), (here, there), difference.token)
    return None


def _step_difference(first: StepTable, second: StepTable) -> StepDifference | None:
    """Return the first stream (in order of computation) or fact in which two steps differ."""
    location = first.stage, first.step
    ids = [sample.sample_id for sample in first.samples], [sample.sample_id for sample in second.samples]
    if ids[0] != ids[1]:
        at = next((i for i, pair in enumerate(zip(*ids, strict=False)) if pair[0] != pair[1]), None)
        values = ids if at is None else (ids[0][at], ids[1][at])
        here, there = (len(each) if at is None else each for each in values)
        return StepDifference(*location, "samples", here, there)
    for name in STREAMS:
        for i in range(len(first.samples)):
            if difference := _stream_difference(name, first, i, second, i):
                return difference
    for one, other in zip(first.samples, second.samples, strict=True):
        if not _equal(one.reward, other.reward):
            return StepDifference(*location, "reward", one.reward, other.reward, one.sample_id)
    weights = [each.facts.get("weights", {}).get("after") for each in (first, second)]
    if weights[0] != weights[1]:
        return StepDifference(*location, "weights after the step", weights[0], weights[1])
    return None


def _stream_difference(
    name: str, table: StepTable, here: int, other: StepTable, there: int
) -> StepDifference | None:
    """Return the first token of a sample at which a stream differs."""
    first, second = _stream(table, here, name), _stream(other, there, name)
    length = min(len(first), len(second))
    equal_T = (first[:length] == second[:length]) | (_missing(first[:length]) & _missing(second[:length]))
    if equal_T.all() and len(first) == len(second):
        return None
    differences = (~equal_T).nonzero()[:, 0].tolist()
    token = differences[0] if differences else length
    mine, theirs = (each[token].item() if token < len(each) else None for each in (first, second))
    count = len(differences) + abs(len(first) - len(second))
    sample_id = table.samples[here].sample_id
    return StepDifference(table.stage, table.step, name, mine, theirs, sample_id, token, count)


def _stream(table: StepTable, index: int, name: str) -> Tensor:
    """Return a stream of a sample, [T]; NaN where the step does not have it."""
    stream_N = table.tokens[name] if name in table.tokens else table.stream(name)
    return stream_N[table.part(index)]


def _missing(stream: Tensor) -> Tensor:
    return stream.isnan() if stream.is_floating_point() else torch.zeros_like(stream, dtype=torch.bool)


def _equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted keys and their values."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _deltas(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Delta, ...]:
    keys = dict.fromkeys((*first, *second))
    return tuple(
        Delta(key, without_secrets(first.get(key), key), without_secrets(second.get(key), key))
        for key in keys
        if first.get(key) != second.get(key)
    )


SEEDS_DIFFER = "different seeds: no token-by-token comparison; to find a change, compare runs of one seed"
"""Why runs with different seeds have no first difference."""


def comparison_lines(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield each line with its style."""
    for name, deltas in (("recipe", comparison.recipe), ("run", comparison.facts)):
        for delta in deltas:
            yield f"{name:<7} {delta.key}: {delta.first!r} | {delta.second!r}", "yellow"
    if comparison.first_difference is None:
        steps = with_count(comparison.same_steps, "step is", "steps are")
        yield f"all {steps} the same, token by token", "green"
    elif comparison.seeds_differ:
        yield SEEDS_DIFFER, "bold yellow"
    else:
        yield from _difference_lines(comparison.first_difference, comparison.same_steps)
    yield from side_by_side_lines(comparison.beside)
    yield from gain_lines(comparison.gains, comparison.seeds)


def _difference_lines(difference: StepDifference, same_steps: int) -> Iterator[tuple[str, str]]:
    """Yield the location of the first difference."""
    if same_steps:
        are = "step is" if same_steps == 1 else f"{same_steps} steps are"
        yield f"the first {are} the same, token by token", "green"
    sample = f" of sample {difference.sample_id}" if difference.sample_id else ""
    token = (
        f" at token {difference.token} ({with_count(difference.tokens, 'token')} of that sample)"
        if difference.token is not None
        else ""
    )
    yield (
        f"step {difference.step + 1} of {difference.stage} differs: {difference.what}{sample}{token}",
        "bold red",
    )
    yield f"  {difference.first!r} | {difference.second!r}", ""
