"""Reads the facts of the panel from the record of a run that may grow."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from truing.analysis.incremental_reader import IncrementalReader
from truing.analysis.scorecard import CriterionVerdict, scorecard
from truing.config import Recipe, resolve
from truing.doctor.report.run_summary import RunSummary, reward_series, run_summary
from truing.errors import RecordError, TruingError
from truing.record.store import RUN
from truing.terminal.throttle import Throttle

CriteriaByVerdict = Mapping[str, tuple[str, ...]]
"""The names of the success criteria by verdict."""

VERDICT_ORDER = get_args(CriterionVerdict)

CRITERIA_SHARE, CRITERIA_PAUSE = 0.005, 1.0
"""The scorecard reads all steps, which takes seconds for a hundred thousand."""


@dataclass(frozen=True, eq=False)
class Screen:
    """The facts of the first screen."""

    summary: RunSummary
    reward_N: NDArray[np.float64]  # [n] each step of the stage of the summary's reward
    criteria: CriteriaByVerdict  # empty if the recipe or the device is unknown


class RunWatcher:
    """Watches a run directory; ``read`` reads new records."""

    def __init__(self, run_dir: Path) -> None:
        if not (Path(run_dir) / RUN).is_file():
            raise RecordError(
                f"{run_dir} is not a run directory",
                got=f"no {RUN} in it",
                expected="a directory that `truing train` wrote",
                remedy="name the run itself; `truing board DIR` shows the runs in a folder",
            )
        self.run = IncrementalReader(Path(run_dir))
        self._criteria: CriteriaByVerdict = {}
        self._throttle = Throttle(CRITERIA_SHARE, CRITERIA_PAUSE)

    def read(self) -> Screen:
        """Return the current facts."""
        try:
            return self._read()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(
                f"the record of {self.run.run_dir} lacks what it should hold",
                got=repr(error),
                expected="facts as this version of Truing writes them",
                remedy="restore the directory from a copy, or look at it with the version that wrote it",
            ) from error

    def _read(self) -> Screen:
        self.run.refresh()
        if damage := [*self.run.malformed, *self.run.missing_steps]:
            raise RecordError(
                f"the record of {self.run.run_dir} is damaged",
                got="; ".join(damage[:3]),
                expected="events and steps as this version of Truing writes them",
                remedy="restore the files from a copy; `truing board` shows what is left",
            )
        summary = run_summary(self.run)
        if summary.state != "running" or not self._throttle.seconds_left:
            with self._throttle.measure():
                self._criteria = self._judge_criteria()
        return Screen(summary, reward_series(self.run.columns), self._criteria)

    def _judge_criteria(self) -> CriteriaByVerdict:
        device = self.run.run_value("machine", "device")
        if self._recipe is None or device is None:
            return {}
        judged = scorecard(self.run.columns, self._recipe, device, self.run.events)
        named = {
            verdict: tuple(each.name for each in judged if each.verdict == verdict)
            for verdict in VERDICT_ORDER
        }
        return {verdict: names for verdict, names in named.items() if names}

    @cached_property
    def _recipe(self) -> Recipe | None:
        """The recipe; None if another version wrote keys that this one does not know."""
        recipe = self.run.reader.run_fact("recipe")
        try:
            return resolve(recipe)
        except TruingError:
            return None
