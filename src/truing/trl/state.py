"""TRL's view of a run: the trainer's state, its log with TRL's metric names, and calls of callbacks."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState

from truing.analysis.current_events import current_evaluations
from truing.errors import InvalidValueError
from truing.metrics.aliases import trl_metrics
from truing.record import Event, RunReader
from truing.trainer.events import STOP
from truing.trl.arguments.batches import Batches
from truing.trl.callback_arguments import callback_arguments
from truing.types.step_table import StepNumbers

NEVER_CALLED = (
    "on_substep_end",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_prediction_step",
    "on_push_begin",
)
"""Events of TRL's trainer that Truing's has no equivalent of."""


UNREAD_FLAGS = {
    "should_save": "set save_steps",
    "should_evaluate": "set eval_strategy and eval_steps",
    "should_epoch_stop": "set should_training_stop, which ends the run with a checkpoint",
}
"""Flags of ``control`` that Truing does not read, and what to set instead."""


def check_callbacks(callbacks: Iterable[Any] | None) -> list[TrainerCallback]:
    """Return callbacks as objects; raise for one that waits for an event that never comes."""
    listed = callbacks if isinstance(callbacks, Iterable) else [] if callbacks is None else [callbacks]
    made = [callback() if isinstance(callback, type) else callback for callback in listed]
    for callback in made:
        if not isinstance(callback, TrainerCallback):
            raise InvalidValueError(
                "callbacks has something that is not a callback",
                got=f"{callback!r:.100}",
                expected="objects or subclasses of transformers.TrainerCallback",
            )
        waits = [
            name
            for name in NEVER_CALLED
            if getattr(type(callback), name, None) is not getattr(TrainerCallback, name, None)
            and not (name == "on_prediction_step" and _shows_progress(callback))
        ]
        if waits:
            raise InvalidValueError(
                f"the callback {type(callback).__name__} has methods that Truing never calls",
                got=", ".join(waits),
                expected="on_train_begin, on_step_begin, on_step_end, on_log, on_evaluate, on_save,"
                " on_epoch_begin, on_epoch_end, on_train_end",
            )
    return made


def _shows_progress(callback: TrainerCallback) -> bool:
    """Whether a callback is a progress bar, which only misses the progress within an evaluation."""
    return any(
        kind.__name__.endswith("ProgressCallback")
        and kind.__module__.split(".")[0] in ("transformers", "trl")
        for kind in type(callback).__mro__
    )


class RunState:
    """Follows the events of a run: keeps the state and its log, and calls the callbacks."""

    def __init__(
        self, args: Any, batches: Batches, logging_every: int, callbacks: Sequence[TrainerCallback]
    ) -> None:
        self.args, self.batches, self.callbacks = args, batches, callbacks
        self.logging_every = logging_every
        self.state = TrainerState(
            max_steps=batches.steps * batches.optimizer_steps,
            num_train_epochs=math.ceil(batches.steps / batches.steps_per_epoch),
            logging_steps=max(1, logging_every) * batches.optimizer_steps,
        )
        self.control = TrainerControl()
        self.run = Path()  # the directory of the training
        self.processing_class: Any = None
        self.model: Any = None  # while it trains
        self._begun = False
        self.user_metrics: dict[str, list[float]] = {}  # of log_metric, since the last step
        self._pending: list[Mapping[str, float]] = []
        self._losses: list[float] = []
        self._started = time.monotonic()

    def log_metric(self, name: str, value: float) -> None:
        """Add a value of a reward function to the next line of the log."""
        self.user_metrics.setdefault(name, []).append(float(value))

    def on_event(self, kind: str, facts: Mapping[str, Any]) -> Literal["stop"] | None:
        """Take an event of the run; ask it to stop if a callback does."""
        if kind == "resumed":
            self._restore()
        if kind == "learner":
            self.model = facts["learner"].model
        if kind in ("learner", "evaluating") and not self._begun:
            self._begin()
        if kind == "step":
            self._step(facts["record"])
        elif kind == "eval":
            self._evaluated(eval_metrics(facts["estimate"], facts["parts"]))
        elif kind == "eval_loss":
            self._evaluated({"eval_loss": facts["loss"]})
        elif kind == "checkpoint":
            self.call("on_save")
        return STOP if self.control.should_training_stop else None

    def reset(self, run: Path) -> None:
        """Prepare for a training that is recorded in ``run``."""
        self.run, self._started = run, time.monotonic()
        self.control, self._begun = TrainerControl(), False

    def _restore(self) -> None:
        """Follow what a resumed run has recorded, without calling the callbacks again."""
        self.state.log_history, self._pending, self._losses = [], [], []
        callbacks, self.callbacks = self.callbacks, []
        reader = RunReader(self.run)
        evaluated = recorded_evaluations(reader.events())
        for row in (None, *reader.iter_steps()):
            if row is not None:
                self._step(row)
            for metrics in evaluated.get(0 if row is None else row.step + 1, ()):
                self._evaluated(metrics)
        self.callbacks = callbacks

    def _begin(self) -> None:
        """Call what precedes the first step."""
        self._begun = True
        self.call("on_train_begin")
        self.call("on_epoch_begin")
        self.call("on_step_begin")

    def end(self) -> dict[str, float]:
        """Log the end of the training; return the totals."""
        seconds = time.monotonic() - self._started
        totals = {
            "train_runtime": seconds,
            "train_steps_per_second": self.state.global_step / seconds,
            "train_loss": sum(self._losses) / len(self._losses) if self._losses else math.nan,
        }
        self.log(totals)
        if self._begun:  # not on ranks that get no events
            self.call("on_train_end")
        return totals

    def log(self, values: Mapping[str, Any]) -> None:
        """Append a line to the log, and show it to the callbacks."""
        line = {**values, "epoch": self.state.epoch, "step": self.state.global_step}
        self.state.log_history.append(line)
        self.call("on_log", logs=dict(values))

    def call(self, event: str, **facts: Any) -> None:
        """Call a method of all callbacks."""
        arguments = callback_arguments(self.model) | facts
        for callback in self.callbacks:
            returned = getattr(callback, event)(
                self.args, self.state, self.control, processing_class=self.processing_class, **arguments
            )
            self.control = returned or self.control
            self._check_control(callback)

    def _check_control(self, callback: TrainerCallback) -> None:
        """Raise if a callback has set a flag that Truing does not read."""
        asked = [name for name in UNREAD_FLAGS if getattr(self.control, name)]
        if asked:
            raise InvalidValueError(
                f"the callback {type(callback).__name__} sets control.{asked[0]}, which Truing does not read",
                expected="control.should_training_stop and control.should_log",
                remedy=UNREAD_FLAGS[asked[0]],
            )

    def _step(self, record: StepNumbers) -> None:
        done = record.step + 1
        self.state.global_step = done * self.batches.optimizer_steps
        self.state.epoch = done / self.batches.steps_per_epoch
        self.call("on_step_end")
        seconds = {"step_time": sum(record.seconds.values())}
        self._pending.append(trl_metrics(record.metrics) | seconds | self._taken_user_metrics())
        self._losses.append(record.metrics.get("loss/total", math.nan))
        first = done == 1 and self.args.logging_first_step
        if first or self.control.should_log or (self.logging_every and done % self.logging_every == 0):
            self.control.should_log = False
            self.log(_mean(self._pending))
            self._pending = []
        last = done == self.batches.steps or self.control.should_training_stop
        if done % self.batches.steps_per_epoch == 0 or last:
            self.call("on_epoch_end")
            if not last:
                self.call("on_epoch_begin")
        if not last:
            self.call("on_step_begin")

    def _taken_user_metrics(self) -> dict[str, float]:
        taken, self.user_metrics = self.user_metrics, {}
        return {name: sum(values) / len(values) for name, values in taken.items()}

    def _evaluated(self, metrics: Mapping[str, float]) -> None:
        own = {f"eval_{name}": value for name, value in self._taken_user_metrics().items()}
        named = {**metrics, **own}
        self.log_evaluation(named)
        self._remember_best(named)

    def log_evaluation(self, metrics: dict[str, float]) -> None:
        """Log the metrics of an evaluation."""
        self.log(metrics)
        self.call("on_evaluate", metrics=metrics)

    def _remember_best(self, metrics: Mapping[str, float]) -> None:
        """Keep the best value of ``metric_for_best_model``, which ``EarlyStoppingCallback`` reads."""
        if self.args.metric_for_best_model is None:
            return
        name = f"eval_{self.args.metric_for_best_model.removeprefix('eval_')}"
        if name not in metrics:
            raise InvalidValueError(
                f"the evaluation has no metric_for_best_model={self.args.metric_for_best_model!r}",
                expected=f"one of {', '.join(metrics)}",
            )
        value, best = metrics[name], self.state.best_metric
        if best is None or (value > best if self.args.greater_is_better else value < best):
            self.state.best_metric, self.state.best_global_step = value, self.state.global_step


def recorded_evaluations(events: Sequence[Event]) -> dict[int, list[dict[str, float]]]:
    """Return the evaluations of a run under TRL's names, by the steps that were done."""
    found: dict[int, list[dict[str, float]]] = {}
    for payload in current_evaluations(events).values():
        found.setdefault(payload["step"], []).append(eval_metrics(payload["estimate"], payload["parts"]))
    losses = {event.payload["step"]: event.payload["loss"] for event in events if event.kind == "eval_loss"}
    for step, loss in losses.items():
        found.setdefault(step, []).append({"eval_loss": loss})
    return found


def eval_metrics(estimate: Mapping[str, Any], parts: Mapping[str, float]) -> dict[str, float]:
    """Return an evaluation under TRL's names, with the interval of its mean."""
    names = {f"eval_rewards/{name}/mean": value for name, value in parts.items()}
    return {
        "eval_reward": estimate["mean"],
        "eval_reward_low": estimate["low"],
        "eval_reward_high": estimate["high"],
    } | names


def _mean(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the steps that have it."""
    names = dict.fromkeys(name for line in lines for name in line)
    values = {name: [line[name] for line in lines if name in line] for name in names}
    return {name: sum(each) / len(each) for name, each in values.items()}
