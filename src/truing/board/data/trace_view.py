"""A trace of another trainer on the board: read by the same pages as a run, with what it has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from truing.board.data.discovery import Kind
from truing.board.data.run_view import RunView
from truing.board.data.trace_reader import TraceReader
from truing.config import Recipe
from truing.doctor.evidence import Setup
from truing.doctor.report.text import report_facts
from truing.doctor.traces.advice import advice
from truing.doctor.traces.setup_words import words_of
from truing.doctor.traces.table import SUPERVISED
from truing.errors import RecordError
from truing.record.sample_columns import SampleSnapshot


class TraceView(RunView):
    """A trace with its columns, findings and recently read steps. Use it under ``lock``."""

    kind: ClassVar[Kind] = "trace"

    def __init__(self, name: str, folder: Path, root: Path) -> None:
        self.trace = TraceReader(folder)
        super().__init__(name, self.trace, root)

    @property
    def answers(self) -> Mapping[str, Any]:
        """None: a trace has no tasks."""
        return {}

    @property
    def recipe(self) -> Recipe | str:
        """Why there is none."""
        return "a trace has no recipe"

    @property
    def recipe_text(self) -> str:
        """Nothing: a trace has no recipe."""
        return ""

    @property
    def about(self) -> Mapping[str, Any]:
        """The trainer, and what it declares."""
        return {"trainer": self.trace.head.producer, "setup": words_of(self.trace.head.setup)}

    @property
    def checked(self) -> Mapping[str, Any]:
        """What `truing check` says besides findings."""
        judged = self.trace.judged
        facts = report_facts(judged.diagnosis)
        notes = [*self.trace.head.lines(), *advice(judged.diagnosis)]
        return {
            "formulas": list(judged.found.lines()),
            "notes": notes,
            "clean": facts["clean"],
            "not_checked": facts["not_checked"],
        }

    @property
    def unread(self) -> int:
        """Steps that are not read yet."""
        return self.trace.unread

    @property
    def problems(self) -> list[str]:
        """Nothing prevents less than showing the trace."""
        return []

    @property
    def written_at(self) -> float:
        """When its folder changed, seconds since 1970."""
        return self.trace.run_dir.stat().st_mtime

    def policy_setup(self, stage: str, step: int) -> Setup | None:
        """Return the declared settings of a policy loss; None of a supervised one."""
        setup = self.trace.head.setup
        return None if setup.algo in SUPERVISED else setup

    def read_samples(self, seconds: float) -> SampleSnapshot:
        """Raise: the samples of a trace are listed by step."""
        raise RecordError(
            "a trace has no list of all samples or prompts", remedy="the page of a step lists its samples"
        )

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by the trace; its number without one."""
        return self.trace.judged.reading.decode(ids)
