"""Passes the events of a run to its listeners; a failing one is reported, and training continues."""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from truing.config import Recipe
from truing.config.secrets import without_secrets
from truing.errors import RecipeError, TruingError
from truing.metrics.aliases import trl_metrics, with_aliases
from truing.trackers.alerts import Alerts
from truing.trackers.backends import BACKENDS, Backend


class EventListener(Protocol):
    """Receives each event of a run."""

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Handle an event: its kind, and its facts."""
        ...

    def close(self) -> None:
        """Handle the end of the run."""
        ...


class TrackerListener:
    """Sends a run's numbers to a tracker, by steps counted over all stages."""

    def __init__(self, recipe: Recipe, backend: Backend) -> None:
        self.recipe, self.backend, self.step_index = recipe, backend, 0

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send the metrics of a step, and the results of an evaluation."""
        if kind == "stage":
            self.step_index = self._before(facts["stage"]) + facts["first_step"]
        if kind == "step":
            record = facts["record"]
            self.step_index = self._before(record.stage) + record.step + 1
            numbers = with_aliases(dict(record.metrics))
            if self.recipe.track.names == "trl":
                numbers |= {f"train/{name}": x for name, x in trl_metrics(record.metrics).items()}
            self.backend.log(numbers, self.step_index)
        if kind == "eval_loss":
            self.backend.log({"eval/loss": facts["loss"]}, self.step_index)
        if kind == "eval":
            estimate = {key: facts["estimate"][key] for key in ("mean", "low", "high")}
            numbers = {f"eval/{key}": value for key, value in estimate.items() if not math.isnan(value)}
            passing = {f"eval/pass@{k}": each["mean"] for k, each in facts.get("pass_at", {}).items()}
            parts = {f"eval_part/{name}": value for name, value in facts["parts"].items()}
            if self.recipe.track.names == "trl":
                parts |= {"eval/reward": estimate["mean"]}
                parts |= {f"eval/rewards/{name}/mean": value for name, value in facts["parts"].items()}
            self.backend.log(numbers | passing | parts, self.step_index)

    def close(self) -> None:
        """Close the tracker's run."""
        self.backend.close()

    def _before(self, stage: str) -> int:
        """Return the number of steps of earlier stages."""
        stages = self.recipe.stages
        return sum(self.recipe.stage(name).steps for name in stages[: stages.index(stage)])


class EventDispatcher:
    """All listeners of a run, by name."""

    def __init__(self, listeners: Mapping[str, EventListener]) -> None:
        self.listeners = dict(listeners)
        self.failed: set[str] = set()

    def dispatch(self, kind: str, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Pass an event on; return the names of listeners that fail for the first time, with messages."""
        return self._call_each(lambda listener: listener(kind, facts))

    def close(self) -> list[tuple[str, str]]:
        """Close all listeners; return failures as `dispatch` does."""
        return self._call_each(lambda listener: listener.close())

    def _call_each(self, call: Callable[[EventListener], None]) -> list[tuple[str, str]]:
        failures = []
        for name, listener in self.listeners.items():
            try:
                with redirect_stdout(sys.stderr):  # trackers print, and stdout belongs to the command
                    call(listener)
            except Exception as error:  # noqa: BLE001 — a third-party program or the network: training continues
                if name not in self.failed:
                    failures.append(
                        (
                            name,
                            f"{str(error) or type(error).__name__}; the run continues and retries",
                        )
                    )
                self.failed.add(name)
        return failures


def check_trackers(recipe: Recipe) -> None:
    """Raise, before anything is loaded, if a tracker is not installed or an alert is invalid."""
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
    """Return the trackers and alerts of a recipe."""
    listeners: dict[str, EventListener] = {}
    config = without_secrets(recipe.model_dump(mode="json"))
    for name in recipe.track.to:
        _, backend_class = BACKENDS[name]
        try:
            with redirect_stdout(sys.stderr):
                backend = backend_class(recipe.track.project, out, config)
        except Exception as error:  # a third-party program
            raise TruingError(
                f"the tracker {name} cannot be started",
                got=error,
                remedy="log in to it, or remove it from track.to",
            ) from error
        listeners[name] = TrackerListener(recipe, backend)
    if recipe.alerts.command or recipe.alerts.webhook:
        listeners["alerts"] = Alerts(recipe.alerts, recipe.name, out)
    return EventDispatcher(listeners)
