"""A run on the board, with what was read of it."""

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer

from truing.analysis.incremental_reader import IncrementalReader
from truing.board.data.discovery import Kind, why_unsafe
from truing.board.data.texts import SampleTexts
from truing.config import PolicyStage, Recipe, resolve
from truing.config.secrets import toml_without_secrets
from truing.doctor.evidence import Setup
from truing.doctor.report.recorded_findings import RecordedFinding, recorded_findings
from truing.doctor.traces.head import has_trace
from truing.doctor.truing_run import recipe_at, setup_of
from truing.errors import RecordError, TruingError
from truing.record.malformed import MALFORMED_ERRORS
from truing.record.sample_columns import SampleColumns, SampleSnapshot
from truing.record.step_line import StepLine
from truing.record.store import RUN, STEPS
from truing.types.step_table import StepTable

SHOWN_FACTS = ("model", "versions", "machine", "sampling_params", "judged")
"""Facts of run.json that the page shows besides the recipe."""

MAX_CACHED_STEPS = 8
"""Maximum steps whose samples are in memory."""


class RunView:
    """A run directory with its columns, events and recently read steps. Use it under ``lock``."""

    kind: ClassVar[Kind] = "run"

    def __init__(self, name: str, run: IncrementalReader, root: Path) -> None:
        self.name, self.run, self.root = name, run, root
        self.identity = run_identity(run.run_dir)
        self.all_findings: list[RecordedFinding] = []  # of all rules
        self._unreadable: list[str] = []  # problems found while reading
        self.lock = threading.RLock()
        self._sample_columns = SampleColumns(run.run_dir)
        self.sample_texts = SampleTexts(self._sample_columns)
        self._tables: OrderedDict[str, StepTable] = OrderedDict()

    def refresh(self) -> bool:
        """Read new records and return whether there were any."""
        if problem := why_unsafe(self.run.run_dir, self.root, self.kind):
            raise RecordError(f"{self.name} contains {problem}; it is not shown")
        if changed := self.run.refresh():
            self.all_findings = recorded_findings(self.run.events)
            self.__dict__.pop("recipe", None)  # a run that is made longer has another
        return changed

    @cached_property
    def answers(self) -> Mapping[str, Any]:
        """The right answers of tasks, by task id."""
        return self.run.reader.answers()

    @cached_property
    def recipe(self) -> Recipe | str:
        """The recipe, or why it cannot be read."""
        try:
            return resolve(self.run.run_value("recipe") or {})
        except (TruingError, *MALFORMED_ERRORS) as error:
            return f"the recipe in run.json cannot be read: {error}"

    def recipe_at(self, stage: str, step: int) -> Recipe | str:
        """Return the recipe at a step, or why it is unknown."""
        if isinstance(self.recipe, str):
            return self.recipe
        if stage not in self.recipe.stages:
            return f"the recipe in run.json has no stage {stage}"
        return recipe_at(self.recipe, self.run.events, stage, step)

    def policy_setup(self, stage: str, step: int) -> Setup | None:
        """Return the settings of a step with a policy loss; None of another, or if they are unknown."""
        recipe = self.recipe_at(stage, step)
        if isinstance(recipe, str) or not isinstance(recipe.stage(stage), PolicyStage):
            return None
        return setup_of(recipe, stage)

    @property
    def recipe_text(self) -> str:
        """The text of the recipe, without its secrets; "" without one."""
        return toml_without_secrets(self.run.reader.recipe())

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts that the page shows besides the recipe."""
        return {name: self.run.run_value(name) for name in SHOWN_FACTS}

    @property
    def checked(self) -> Mapping[str, Any] | None:
        """What `truing check` says besides findings; None of a run, which was checked while it trained."""
        return None

    @property
    def unread(self) -> int:
        """Steps that are not read yet: the next refresh goes on."""
        return 0

    @property
    def problems(self) -> list[str]:
        """Problems that do not prevent showing the run."""
        stages = dict.fromkeys(name for name, _, _ in self.run.columns.stages)
        recipe_by_stage = {name: self.recipe_at(name, 0) for name in stages}
        recipes = [self.recipe] if isinstance(self.recipe, str) else list(recipe_by_stage.values())
        unreadable = [each for each in recipes if isinstance(each, str)] + self._unreadable
        return [*unreadable, *self.run.malformed, *self.run.missing_steps]

    @property
    def device(self) -> str:
        """The device of the run."""
        return str(self.run.run_value("machine", "device") or "")

    @property
    def written_at(self) -> float:
        """When its steps were last written, seconds since 1970."""
        return (self.run.run_dir / STEPS).stat().st_mtime

    def findings(self, stage: str, step: int) -> list[RecordedFinding]:
        """Return the findings of a step, without those of undone steps."""
        return [
            each for each in self.all_findings if (each.stage, each.step, each.undone) == (stage, step, "")
        ]

    def step_at(self, row: int) -> StepLine:
        """Return the record of a step by its row."""
        return self.run.step_row(row)

    def row_index(self, stage: str, number: int) -> int:
        """Return the row of a step by its stage and its number there, from 1."""
        columns = self.run.columns
        if (row := columns.find(stage, number - 1)) is None:
            ends = {name: int(columns.step[end - 1]) + 1 for name, _, end in columns.stages}
            expected = (
                f"up to {stage} {ends[stage]}" if stage in ends else ", ".join(ends) or "none is made yet"
            )
            raise RecordError(f"{self.name} has no step {stage[:50]} {number}", expected=expected)
        return row

    def find_step(self, stage: str, number: int) -> StepLine:
        """Return the record of a step by its stage and its number there, from 1."""
        return self.step_at(self.row_index(stage, number))

    def find_sample(self, step: StepLine, name: str) -> tuple[StepTable, int]:
        """Return the step of a sample, and the sample's index in it."""
        table = self.table(step)
        for index, sample in enumerate(table.samples):
            if sample.sample_id == name:
                return table, index
        raise RecordError(f"{step.stage} {step.step + 1} has no sample {name[:200]}")

    def table(self, step: StepLine) -> StepTable:
        """Return a step with its samples, verified by checksum."""
        key = step.segment.sha256
        if key not in self._tables:
            self._tables[key] = self.run.table(step)
            if len(self._tables) > MAX_CACHED_STEPS:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return self._tables[key]

    def read_samples(self, seconds: float) -> SampleSnapshot:
        """Return the columns of all samples read so far, reading more for ``seconds``."""
        return self._sample_columns.refresh(self.run.columns.segment_refs, seconds)

    def samples_with_findings(self) -> set[str]:
        """Return the samples that findings name."""
        return {name for each in self.all_findings if not each.undone for name in each.marks} - {""}

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by the tokenizer in the run; ⟨id⟩ without text."""
        return [self._text(i) for i in ids]

    def _text(self, token_id: int) -> str:
        texts: dict[int, str] = self._texts
        if token_id not in texts:
            text = self._tokenizer.decode([token_id], skip_special_tokens=False) if self._tokenizer else ""
            texts[token_id] = text or f"⟨{token_id}⟩"
        return texts[token_id]

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer in the run directory; one elsewhere is not read."""
        named = str(self.run.run_value("tokenizer") or "")
        path = Path(os.path.realpath(self.run.run_dir / named / "tokenizer.json"))
        if not path.is_relative_to(self.root) or not path.is_file():
            return None
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - of another's code, which raises nothing narrower
            self._unreadable = [f"the tokenizer of {self.name} cannot be read: {error}"]
            return None


def run_identity(run_dir: Path) -> tuple[int, int] | None:
    """Return inode and time of run.json, which differ for another run; None if it is absent.

    Of a trace the inode of the folder: its trainer may declare its settings anew.
    """
    try:
        if has_trace(run_dir):
            return run_dir.stat().st_ino, 0
        status = (run_dir / RUN).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
