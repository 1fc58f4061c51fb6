"""The run summary: state, stages, reward, findings and pace of a run.

The board, the panel of `truing train` and `truing tail` show the same facts, from the record alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import Estimate, Interval, read_estimate, read_pass_at
from truing.analysis.incremental_reader import IncrementalReader
from truing.doctor.report.recorded_findings import RecordedFinding, recorded_findings, strongest_by_rule
from truing.record.step_columns import StepColumns
from truing.record.store import ABANDONED, RUN

RunState = Literal[
    "running", "finished", "stopped by a finding", "given up", "stopped", "crashed", "undone", "trace"
]

RECENT_STEPS = 10
"""Steps in the mean of the reward, and of the pace."""

TRACE_EVENT = "trace"
"""The event of another trainer's trace: whether its training goes on is not known."""

END_EVENTS = ("finished", "gave_up", "stopped", "resumed", TRACE_EVENT)
"""Events at the end of a run; the last counts, and a resumed run has not ended."""

STATE_OF_ERROR: Mapping[str, RunState] = {
    "ProvenError": "stopped by a finding",
    "GuardError": "given up",
    "GateError": "stopped",
    "KeyboardInterrupt": "stopped",
    "Terminated": "stopped",
}
"""The state of a run by the error that ended it; any other error is a crash."""

SIGNAL_TEXT = {"KeyboardInterrupt": "a user stopped it", "Terminated": "SIGTERM stopped it"}
"""The reason of a stop by a signal."""

UNDONE_TEXT = "the guard rolled back these steps"
KILLED_TEXT = (
    "no process writes it, and it recorded no error: the process was killed, or the machine went down"
)


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run."""

    name: str
    state: RunState
    why: str  # the reason for the state, or ""
    stages: tuple[tuple[str, int, int], ...]  # each with its steps so far, and in all
    reward: Interval | None  # mean of the last steps of the last stage with rewards, assumed alike
    evaluations: Mapping[str, Estimate]
    findings: tuple[RecordedFinding, ...]  # one for each rule, the strongest first
    facts: tuple[RecordedFinding, ...]  # facts from rules; none is a fault
    incidents: int
    seconds: float  # of all steps; NaN of a trace
    tokens: float  # sampled by the policy
    tokens_per_s: float  # of the last step; NaN before it
    loss: str  # the label of the last loss
    left: float  # seconds to the end of its stage, at the pace of its last steps; NaN if it is not running
    pass_at: Mapping[str, Mapping[int, Estimate]] = field(  # by evaluation and k
        default_factory=dict[str, Mapping[int, Estimate]]
    )

    @property
    def current_stage(self) -> tuple[str, int, int] | None:
        """Return the current or last stage of the run; None before the first step."""
        return next((each for each in reversed(self.stages) if each[1]), None)


def run_summary(run: IncrementalReader) -> RunSummary:
    """Return the summary, as of the run's last refresh."""
    columns, (state, why) = run.columns, _state(run)
    evaluated = current_evaluations(run.events)
    stages = _stages(run)
    reward_N = reward_series(columns)[-RECENT_STEPS:]
    pace_N = step_seconds(columns)
    return RunSummary(
        name=str(run.run_value("name") or run.run_dir.name),
        state=state,
        why=why,
        stages=stages,
        reward=_mean(reward_N) if len(reward_N) else None,
        evaluations={name: read_estimate(payload) for name, payload in evaluated.items()},
        pass_at={name: read_pass_at(payload) for name, payload in evaluated.items()},
        findings=strongest_by_rule(recorded_findings(run.events)),
        facts=strongest_by_rule(recorded_findings(run.events, "fact")),
        incidents=sum(event.kind == "incident" for event in run.events),
        seconds=math.nan if state == "trace" else float(pace_N.sum()),
        tokens=float(np.nansum(columns.column("tokens/sampled"))),
        tokens_per_s=float(columns.column("throughput/tokens_per_s")[-1]) if len(columns) else math.nan,
        loss=columns.loss_label[-1].as_py() if len(columns) else "",
        left=_seconds_left(columns, stages, pace_N) if state == "running" else math.nan,
    )


def _seconds_left(
    columns: StepColumns, stages: Sequence[tuple[str, int, int]], pace_N: NDArray[np.float64]
) -> float:
    """Return the seconds to the end of the stage, at the pace of its last steps; NaN before the first."""
    plan = {name: steps - done for name, done, steps in stages}
    for name, start, end in reversed(columns.stages):
        return plan.get(name, 0) * float(pace_N[start:end][-RECENT_STEPS:].mean())
    return math.nan


def step_seconds(columns: StepColumns) -> NDArray[np.float64]:
    """Return the duration of each step, all phases, [n] seconds."""
    phases = [values for name, values in columns.numbers.items() if name.startswith("seconds/")]
    return np.nansum(phases, axis=0) if phases else np.zeros(len(columns))


def reward_series(columns: StepColumns) -> NDArray[np.float64]:
    """Return the mean reward of each step of the last stage with rewards, [n]."""
    for _, start, end in reversed(columns.stages):
        reward_N = columns.column("reward/mean")[start:end]
        reward_N = reward_N[~np.isnan(reward_N)]
        if len(reward_N):
            return reward_N
    return np.empty(0)


def _state(run: IncrementalReader) -> tuple[RunState, str]:
    """Return whether the run goes on, and how it ended."""
    end = next((event for event in reversed(run.events) if event.kind in END_EVENTS), None)
    kind, payload = ("", {}) if end is None else (end.kind, end.payload)
    if kind == "finished":
        return "finished", ""
    if kind == TRACE_EVENT:
        return "trace", ""
    if run.has_writer:
        return "running", ""
    if kind in ("gave_up", "stopped"):
        return STATE_OF_ERROR.get(payload.get("error", "GuardError"), "crashed"), _reason(payload)
    if run.run_dir.parent.name == ABANDONED and (run.run_dir.parent.parent / RUN).is_file():
        return "undone", UNDONE_TEXT
    return "crashed", KILLED_TEXT


def _reason(payload: Mapping[str, Any]) -> str:
    """Return the reason of a stop: the text of a Truing error, or the name and first line of another."""
    if text := SIGNAL_TEXT.get(payload["reason"]):
        return text
    if payload["reason"] != payload.get("error"):
        return payload["reason"]
    first_line = str(payload.get("message", "")).partition("\n")[0]
    return f"{payload['reason']}: {first_line}" if first_line else payload["reason"]


def _stages(run: IncrementalReader) -> tuple[tuple[str, int, int], ...]:
    """Return each stage of the recipe with its recorded steps, and its total."""
    done = {name: int(run.columns.step[end - 1]) + 1 for name, _, end in run.columns.stages}
    names = run.run_value("recipe", "stages")
    listed = [str(name) for name in names] if isinstance(names, list) else []
    planned = {name: run.run_value("recipe", name, "steps") for name in listed}
    return tuple(
        (name, done.get(name, 0), steps) for name, steps in planned.items() if isinstance(steps, int)
    )


def _mean(values_N: NDArray[np.float64]) -> Interval:
    """Return a mean and Student's interval, assuming alike and independent steps."""
    mean, count = float(values_N.mean()), len(values_N)
    if count < 2 or values_N.min() == values_N.max():
        return Interval(mean, math.nan, math.nan)
    half = float(scipy.stats.t.ppf(0.975, count - 1) * values_N.std(ddof=1) / math.sqrt(count))
    return Interval(mean, mean - half, mean + half, supposes="normal rewards")
