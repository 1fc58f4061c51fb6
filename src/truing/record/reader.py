"""Reads a run directory, also while it is written, and verifies every segment."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from truing.errors import RecordError
from truing.record.events import Event
from truing.record.fields import Misfit, check
from truing.record.index import SegmentRef
from truing.record.lost_steps import lost_steps
from truing.record.malformed import damaged_line
from truing.record.run_json import FORMAT, RUN_JSON
from truing.record.step_columns import columns_of
from truing.record.step_line import StepLine
from truing.record.store import (
    ABANDONED,
    ANSWERS,
    EVENTS,
    PARQUET,
    RECIPE,
    RUN,
    STEPS,
    CompactedFile,
    load_step,
)
from truing.types.step_table import StepTable
from truing.utils.format import shorten, with_count
from truing.utils.jsonl import complete_lines, is_being_written, read_jsonl
from truing.utils.parse import parse_json, parse_toml
from truing.utils.regular_files import read_regular_text

Line = TypeVar("Line")


def has_writer(run_dir: Path) -> bool:
    """Return whether a writer has the run directory open now.

    False if there is no run; a RecordError if the directory is not readable. A trainer that starts during the
    check retries.
    """
    return is_being_written(Path(run_dir) / STEPS)


class RunReader:
    """Reads a run directory; each call reads from disk, except the row group that was read last."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        if not self.run_dir.is_dir():
            raise RecordError(
                f"{run_dir} is not a run directory", expected="a directory that `truing train` wrote"
            )
        self._groups = CompactedFile(self.run_dir / PARQUET)

    def run_json(self) -> dict[str, Any]:
        """Return run.json."""
        path, remedy = self.run_dir / RUN, "restore the file from a copy"
        try:
            facts = parse_json(self._text(RUN))
            check(RUN_JSON, facts)
        except Misfit as error:
            raise RecordError(
                f"{path} is damaged at {error.key}", got=error.got, expected=error.expected, remedy=remedy
            ) from error
        except ValueError as error:
            raise RecordError(
                f"{path} is damaged", got=shorten(str(error)), expected="a JSON object", remedy=remedy
            ) from error
        if facts.get("format", FORMAT) != FORMAT:
            raise RecordError(
                f"{self.run_dir} is a run of another format",
                got=facts["format"],
                expected=FORMAT,
                remedy="read it with the version of Truing that wrote it",
            )
        return facts

    def answers(self) -> dict[str, Any]:
        """Return the right answers of tasks by task id; none if the run did not record them."""
        path = self.run_dir / ANSWERS
        if not path.is_file():
            return {}
        try:
            answers = parse_json(read_regular_text(path))
        except (OSError, ValueError) as error:
            raise RecordError(f"{path} is damaged", got=error, expected="a JSON object") from error
        if not isinstance(answers, dict):
            raise RecordError(f"{path} is damaged", got=answers, expected="a JSON object")
        return answers

    def run_fact(self, *path: str) -> Any:
        """Return the value at a path of keys in run.json, which must be there."""
        value: Any = self.run_json()
        for depth, name in enumerate(path, 1):
            if not isinstance(value, dict) or name not in value:
                raise RecordError(
                    f"{self.run_dir / RUN} has no {'.'.join(path[:depth])!r}",
                    expected="the facts that `truing train` writes",
                    remedy="restore the file from a copy, or use the version of Truing that wrote it",
                )
            value = value[name]
        return value

    def recipe(self) -> str:
        """Return the text of the recipe."""
        return self._text(RECIPE)

    def recipe_table(self) -> dict[str, Any]:
        """Return the table of the recipe."""
        try:
            return parse_toml(self.recipe())
        except ValueError as error:
            raise RecordError(
                f"{self.run_dir / RECIPE} is damaged", got=error, expected="the recipe of the run"
            ) from error

    def steps(self) -> list[StepLine]:
        """Return every recorded step, in order."""
        return list(self.iter_steps())

    def iter_steps(self) -> Iterator[StepLine]:
        """Yield every recorded step, in order: a long run has more of them than fit into memory."""
        last: dict[str, int] = {}

        def parse(line: Mapping[str, Any]) -> StepLine:
            row = StepLine.from_json(line)
            if row.step <= last.get(row.stage, -1):  # a rollback removes lines, so numbers only go up
                raise Misfit("step", f"{row.stage} {row.step} after {last[row.stage]}", "a later step")
            last[row.stage] = row.step
            return row

        return self._lines(STEPS, parse)

    def count_steps(self) -> int:
        """Return the number of recorded steps."""
        return sum(1 for _ in complete_lines(self.run_dir / STEPS))

    def _undone_segments(self) -> Iterator[SegmentRef]:
        """Yield where the rows were of steps that are archived as undone."""
        for path in sorted(self.run_dir.glob(f"{ABANDONED}/**/{STEPS}")):
            yield from (SegmentRef.from_step(row) for row in RunReader(path.parent).iter_steps())

    def check_complete(self) -> None:
        """Raise a RecordError if a file has lost lines: by numbers of steps, the events, or the rows."""
        events, noted = self.events(), 0

        def rows() -> Iterator[StepLine]:
            nonlocal noted
            for row in self.iter_steps():
                noted = max(noted, row.events)
                yield row

        columns = columns_of(rows())
        if noted > len(events) and noted > len(self.events()):  # not only written since
            raise RecordError(
                f"{self.run_dir / EVENTS} is not whole",
                got=with_count(len(events), "line"),
                expected=f"at least {noted}, as its steps say",
                remedy="restore the file from a copy",
            )
        by_number = lost_steps(columns, events)
        unlisted = self._groups.count_unlisted(columns.segment_refs)
        if unlisted:  # steps that were undone stay in the compacted file, until it is written again
            unlisted = self._groups.count_unlisted([*columns.segment_refs, *self._undone_segments()])
        lost = max(unlisted, sum(by_number.values()))
        if lost:
            raise RecordError(
                f"{self.run_dir / STEPS} is not whole",
                got=with_count(lost, "step has no line", "steps have no line"),
                expected="a line for each step",
                remedy="restore the file from a copy; if it was never changed, a resume has left out a step",
            )

    def events(self) -> list[Event]:
        """Return every recorded event, oldest first."""
        return list(self._lines(EVENTS, Event.from_json))

    def no_step_error(self) -> RecordError:
        """Return the error for a run without a recorded step, with what ended it if it has ended."""
        ends = [event.payload for event in self.events() if event.kind == "stopped"]
        if not ends:
            return RecordError(f"{self.run_dir} has no step yet", remedy="wait for its first step")
        recipe = self.run_dir / RECIPE
        given = "".join(f", {name}=…" for name in self.run_json().get("given_in_python", ()))
        again = f'truing.train("{recipe}"{given})' if given else f"truing train {recipe}"
        return RecordError(
            f"{self.run_dir} ended before its first step",
            got=ends[-1].get("message") or ends[-1]["reason"],
            remedy=f"mend that, and begin again: {again}",
        )

    def find_table(self, stage: str, step: int) -> StepTable:
        """Return a step, verified by checksum."""
        last = "no step at all"
        for row in self.iter_steps():
            if (row.stage, row.step) == (stage, step):
                return self.table(row)
            last = f"{row.stage} {row.step}"
        raise RecordError(f"{self.run_dir} holds no step {step} of stage {stage}", expected=f"up to {last}")

    def table(self, row: StepLine) -> StepTable:
        """Return the step of a line, verified by checksum."""
        return load_step(self.run_dir, row, self._groups)

    def _lines(self, name: str, parse: Callable[[Mapping[str, Any]], Line]) -> Iterator[Line]:
        path = self.run_dir / name
        for number, line in enumerate(read_jsonl(path), start=1):
            with damaged_line(path, number):
                parsed = parse(line)
            yield parsed

    def _text(self, name: str) -> str:
        path = self.run_dir / name
        try:
            return read_regular_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"cannot read {path}", got=error, expected="a file of a run") from error
