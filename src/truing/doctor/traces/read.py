"""A trace as steps: what `truing check` and its like read of another trainer's training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.doctor.report.token_texts import Decode
from truing.doctor.traces import head
from truing.doctor.traces.dumps.detect import Dump, dump_of
from truing.doctor.traces.setup_words import declared_setup
from truing.doctor.traces.step_file import StepFile, read_step_file
from truing.doctor.traces.table import is_part, table_of
from truing.errors import RecordError

PATTERN = "[0-9]*.safetensors"


def is_trace(folder: Path) -> bool:
    """Return whether a path has the steps of another trainer: a trace, or a dump."""
    if (folder / "run.json").is_file():
        return False
    return head.has_trace(folder) or dump_of(folder) is not None


@dataclass
class Reading:
    """What the steps of a trace have in common, and what earlier ones leave to the next."""

    setup: Setup
    history: History = field(default_factory=History)
    texts: dict[str, str] = field(default_factory=dict[str, str])  # of ids

    def step(self, files: Sequence[StepFile]) -> Step:
        """Return the next step, with the earlier ones."""
        self.texts |= {i: text for file in files for i, text in file.facts.texts.items()}
        step = step_of(files, self.setup, self.history)
        self.history.add(step)
        return step

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id; its number if no step has a text."""
        return [self.texts.get(str(i), f"‹{i}›") for i in ids]


def trace_steps(folder: Path, declared: Mapping[str, Any] = {}) -> Iterator[tuple[Step, Decode]]:
    """Yield each step with its earlier ones, and the text of its ids.

    Args:
        folder: a trace, or a dump.
        declared: settings by the words of a trace's setup, beside its own.
    """
    dump = _dump(folder)
    if dump is None:
        setup, steps = head.read_head(folder, declared).setup, step_files(folder)
    else:
        setup, _ = declared_setup(declared, dump.reader.trainer, "the declared settings")
        steps = (step.files for step in dump.steps())
    reading = Reading(setup)
    for files in steps:
        yield reading.step(files), reading.decode


def step_of(files: Sequence[StepFile], setup: Setup, history: History) -> Step:
    """Return the step of some files, with what its trainer declares, and the steps before it."""
    return Step.of(table_of(files, setup), _of_step(setup, files), history)


def trace_notes(folder: Path, declared: Mapping[str, Any] = {}) -> list[str]:
    """Return what a trace says of itself beside its steps, as lines."""
    if (dump := _dump(folder)) is None:
        return head.read_head(folder, declared).lines()
    _, others = declared_setup(declared, dump.reader.trainer, "the declared settings")
    return [*head.other_lines(others), *dump.notes()]


def _dump(folder: Path) -> Dump | None:
    return None if head.has_trace(folder) else dump_of(folder)


def step_paths(folder: Path) -> list[list[Path]]:
    """Return the files of each step of a trace, in the order of steps."""
    paths = sorted(folder.glob(PATTERN), key=lambda path: (_number(path), path.name))
    return [list(of_step) for _, of_step in groupby(paths, key=_number)]


def step_files(folder: Path) -> Iterator[Sequence[StepFile]]:
    """Yield the files of each step of a trace."""
    before = -1
    for paths in step_paths(folder):
        files = read_step(paths, before)
        before = files[0].facts.step
        yield files


def read_step(paths: Sequence[Path], before: int) -> Sequence[StepFile]:
    """Return the files of a step; raise a RecordError unless it comes after ``before``; −1 is no step."""
    files = [read_step_file(path) for path in paths]
    _check_steps(files, _number(paths[0]), before)
    return files


def _number(path: Path) -> str:
    """Return the number of a step in the name of its file."""
    return path.name.partition(".")[0]


def _check_steps(files: Sequence[StepFile], number: str, before: int) -> None:
    """Raise unless the files of a step say its number, and steps come in their order."""
    for file in files:
        if not number.isdecimal() or file.facts.step != int(number):
            raise RecordError(
                f"{file.path} is of another step than its name says", got=file.facts.step, expected=number
            )
    if files[0].facts.step <= before:
        raise RecordError(
            f"{files[0].path}: steps are out of order", got=files[0].facts.step, expected=before + 1
        )


def _of_step(setup: Setup, files: Sequence[StepFile]) -> Setup:
    """Return the settings with what the files say; of a part of the rows no denominator is known."""
    sources = {file.facts.origin_source for file in files}
    from_mask = next((each for each in ("loss_mask", "sampled_mask") if each in sources), "")
    setup = replace(setup, origin_source=from_mask)
    return replace(setup, aggregation=None, plain=None) if is_part(files) else setup
