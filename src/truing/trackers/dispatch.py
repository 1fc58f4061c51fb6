"""Passes the events of a run on to its followers; one that fails is told of, and stops no training."""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from truing.config import Recipe
from truing.errors import RecipeError, TruingError
from truing.trackers.alerts import Alerts
from truing.trackers.aliases import with_aliases
from truing.trackers.backends import BACKENDS, Backend


class EventListener(Protocol):
    """Told of each event of a run."""

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """An event: its kind, and its facts."""
        ...

    def close(self) -> None:
        """The run is over, or was stopped."""
        ...


class TrackerListener:
    """Follows a run and sends its numbers to a tracker, over updates counted through all stages."""

    def __init__(self, recipe: Recipe, backend: Backend) -> None:
        self.recipe, self.backend, self.update_index = recipe, backend, 0

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send the metrics of a step, and what an evaluation came to."""
        if kind == "stage":
            self.update_index = self._before(facts["stage"]) + facts["first_step"]
        if kind == "step":
            record = facts["record"]
            self.update_index = self._before(record.stage) + record.step + 1
            self.backend.log(with_aliases(dict(record.metrics)), self.update_index)
        if kind == "eval":
            told = {key: facts["estimate"][key] for key in ("mean", "low", "high")}
            numbers = {f"eval/{key}": value for key, value in told.items() if not math.isnan(value)}
            passing = {f"eval/pass@{k}": each["mean"] for k, each in facts.get("pass_at", {}).items()}
            parts = {f"eval_part/{name}": value for name, value in facts["parts"].items()}
            self.backend.log(numbers | passing | parts, self.update_index)

    def close(self) -> None:
        """End the tracker's run."""
        self.backend.close()

    def _before(self, stage: str) -> int:
        """Updates of the stages before."""
        stages = self.recipe.stages
        return sum(self.recipe.stage(name).steps for name in stages[: stages.index(stage)])


class EventDispatcher:
    """All of them, each with a name."""

    def __init__(self, each: Mapping[str, EventListener]) -> None:
        self.listeners = dict(each)
        self.failed: set[str] = set()

    def dispatch(self, kind: str, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Pass an event on; names of followers that failed for the first time, and what to tell."""
        return self._call_each(lambda follower: follower(kind, facts))

    def close(self) -> list[tuple[str, str]]:
        """End them all; what to tell, as before."""
        return self._call_each(lambda follower: follower.close())

    def _call_each(self, call: Callable[[EventListener], None]) -> list[tuple[str, str]]:
        told = []
        for name, follower in self.listeners.items():
            try:
                with redirect_stdout(sys.stderr):  # trackers chat, and stdout is for what a command prints
                    call(follower)
            except Exception as error:  # noqa: BLE001 — somebody else's program, or the network: training goes on
                if name not in self.failed:
                    told.append(
                        (
                            name,
                            f"{str(error) or type(error).__name__}; the run goes on, and it is tried again",
                        )
                    )
                self.failed.add(name)
        return told


def check_trackers(recipe: Recipe) -> None:
    """Raise, before anything is loaded, where a tracker is not installed or an alert cannot be understood."""
    for name in recipe.track.to:
        module, _ = BACKENDS[name]
        if find_spec(module) is None:
            raise RecipeError(
                f"track.to names {name}, which is not installed",
                expected=module,
                remedy="pip install truing[trackers]",
            )
    Alerts(recipe.alerts, recipe.name, Path())


def open_trackers(recipe: Recipe, out: Path) -> EventDispatcher:
    """The trackers and alerts that a recipe declares."""
    each: dict[str, EventListener] = {}
    for name in recipe.track.to:
        _, opened = BACKENDS[name]
        try:
            with redirect_stdout(sys.stderr):
                backend = opened(recipe.track.project, out, recipe.model_dump(mode="json"))
        except Exception as error:  # somebody else's program
            raise TruingError(
                f"the tracker {name} cannot be started",
                got=error,
                remedy="log in to it, or leave it out of track.to",
            ) from error
        each[name] = TrackerListener(recipe, backend)
    if recipe.alerts.command or recipe.alerts.webhook:
        each["alerts"] = Alerts(recipe.alerts, recipe.name, out)
    return EventDispatcher(each)
