"""Writes a run directory in an order such that a crash at any byte loses at most the last record.

A step's segment is written first, then its line is appended and synced. A segment without a line is not
recorded; neither is a line without its newline.
"""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from truing.errors import RecordError
from truing.record.index import SegmentRef
from truing.record.reader import RunReader
from truing.record.segments import encode, warm_up
from truing.record.step_line import Segment, StepLine
from truing.record.steps_reader import NUMBERS_EVENT, declared_numbers, number_names
from truing.record.store import ANSWERS, EVENTS, RECIPE, RUN, STEPS, rollouts_dir
from truing.types.step_table import StepNumbers, StepTable
from truing.utils.atomic_files import disk_errors, sha256, write_atomically
from truing.utils.jsonl import JsonlWriter, dump_json


class RunWriter:
    """The only writer of a run directory."""

    def __init__(self, run_dir: Path, *, resume: bool = False) -> None:
        """Open a new or empty directory, or, to resume, one that contains a run."""
        self.run_dir = Path(run_dir)
        _check_directory(self.run_dir, resume)
        self._rollouts = rollouts_dir(self.run_dir)
        with disk_errors(self.run_dir):
            self._rollouts.mkdir(parents=True, exist_ok=True)
        self._steps = JsonlWriter(self.run_dir / STEPS)
        self._events = JsonlWriter(self.run_dir / EVENTS)
        self._recorded: list[SegmentRef] = []
        self._recorded_steps: set[tuple[str, int]] = set()
        events = RunReader(self.run_dir).events()
        self._declared, self._event_count = declared_numbers(events), len(events)
        self._truncate([SegmentRef.from_step(row) for row in RunReader(self.run_dir).iter_steps()])
        warm_up()

    def write_run(self, facts: Mapping[str, Any]) -> None:
        """Write run.json, once: any JSON; the token view needs ``tokenizer``, a path or hub id."""
        self._write_once(RUN, dump_json(facts, indent=2))

    def write_recipe(self, text: str) -> None:
        """Write the recipe's text, once."""
        self._write_once(RECIPE, text.encode())

    def write_answers(self, answers: Mapping[str, str]) -> None:
        """Write the right answers of tasks, by task id, once."""
        self._write_once(ANSWERS, dump_json(answers))

    def add_answers(self, answers: Mapping[str, Any]) -> None:
        """Add the right answers of further tasks, of a fork with other tasks."""
        known = RunReader(self.run_dir).answers()
        write_atomically(self.run_dir / ANSWERS, dump_json({**known, **answers}))

    def rewrite(self, recipe: str, facts: Mapping[str, Any]) -> None:
        """Write recipe and run.json again, of a run that is made longer, or of a fork."""
        write_atomically(self.run_dir / RECIPE, recipe.encode())
        write_atomically(self.run_dir / RUN, dump_json(facts, indent=2))

    def write_step(self, table: StepTable) -> None:
        """Record a step."""
        if (table.stage, table.step) in self._recorded_steps:
            raise RecordError(
                f"step {table.step} of stage {table.stage} is recorded already",
                remedy="call truncate_to before recording it again",
            )
        data = encode(table)
        segment = Segment(segment_name(table.stage, table.step), len(table.samples), sha256(data))
        write_atomically(self._rollouts / segment.file, data)
        self._declare_numbers(table)
        line = StepLine(**vars(table.only_numbers), segment=segment, events=self._event_count)
        self._steps.append(line.to_json())
        self._recorded.append(SegmentRef.from_step(line))
        self._recorded_steps.add((line.stage, line.step))

    def write_event(self, kind: str, **payload: Any) -> None:
        """Record an event with the current time; NaN in the payload is read back as None."""
        self._events.append({"time": time.time(), "kind": kind, "payload": payload})
        self._event_count += 1

    def truncate_to(self, stage: str, steps: int) -> None:
        """Forget every step beyond the first ``steps`` of a stage, to resume from its checkpoint."""
        for count, ref in enumerate(self._recorded):
            if ref.stage == stage and (ref.step == steps - 1 or steps == 0):
                return self._truncate(self._recorded[: count + (steps > 0)])
        if steps > 0:
            raise RecordError(
                f"{self.run_dir} holds no step {steps - 1} of stage {stage} to resume after",
                expected=f"one of {len(self._recorded)} recorded steps",
                remedy="resume from a checkpoint of this run, or start anew in another --out",
            )

    def clear(self) -> None:
        """Forget every step, to resume without a checkpoint."""
        self._truncate([])

    def close(self) -> None:
        """Release the directory to other writers."""
        self._steps.close()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _declare_numbers(self, numbers: StepNumbers) -> None:
        """Declare new column names of a line by an event, so that lines can be read as columns."""
        if new := [name for name in number_names(numbers) if name not in self._declared]:
            self.write_event(NUMBERS_EVENT, names=new)
            self._declared.update(new)

    def _truncate(self, refs: Sequence[SegmentRef]) -> None:
        """Keep these first lines, then remove segments without a line."""
        self._steps.truncate(len(refs))
        self._recorded = list(refs)
        self._recorded_steps = {(ref.stage, ref.step) for ref in refs}
        files = {ref.file for ref in refs}
        with disk_errors(self._rollouts):
            for path in self._rollouts.iterdir():
                if path.name not in files:
                    path.unlink()

    def _write_once(self, name: str, data: bytes) -> None:
        path = self.run_dir / name
        if path.exists():
            raise RecordError(f"{path} was written already", remedy="it is written once; use another --out")
        write_atomically(path, data)


def segment_name(stage: str, step: int) -> str:
    """Return the file name of a step's rows: ``grpo-000012.arrow``."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stage):
        raise RecordError("a stage cannot name a file", got=repr(stage), expected="letters, digits, _ and -")
    return f"{stage}-{step:06d}.arrow"


def _check_directory(run_dir: Path, resume: bool) -> None:
    """Raise if a new run would write into a used directory, or a resumed run has no directory."""
    if resume and not (run_dir / RUN).is_file():
        raise RecordError(
            f"{run_dir} holds no run to resume",
            expected=f"a {RUN} in it",
            remedy="leave --resume out, or fix --out",
        )
    if not resume and run_dir.exists() and not (run_dir.is_dir() and not any(run_dir.iterdir())):
        raise RecordError(
            f"{run_dir} exists and is not empty",
            expected="a new or empty directory",
            remedy="go on with it by --resume (resume=True), delete it, or choose another --out (out=)",
        )
