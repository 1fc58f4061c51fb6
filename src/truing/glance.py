"""What the first screen says of a run: is it alive, where is it, what does it earn, what was found.

The board, the panel of `truing train` and `truing tail` show the same facts, from the record alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from truing.doctor.verdict import FINDINGS, Verdict
from truing.errors import RecordError
from truing.record import Event
from truing.record.followed import Followed
from truing.record.lines import floats_from_json
from truing.record.told import evaluations_told
from truing.record.updates import Columns

State = Literal["running", "finished", "stopped by a finding", "given up", "stopped", "crashed"]

LAST = 10
"""Updates that the reward, and the pace, are averaged over."""

ENDS = ("finished", "gave_up", "stopped", "resumed")
"""Events that say how a run ended; the last counts, and one that was resumed has not ended."""

SILENT = "no process writes it, and it did not say why: it was killed, or the machine went down"


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; bounds are NaN where there is one number alone."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        bounds = "" if math.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.mean:.3f}{bounds}"


@dataclass(frozen=True)
class Told:
    """A finding of a rule as the run told it while it went on."""

    code: str
    name: str
    verdict: Verdict
    stage: str
    step: int
    sample_id: str
    start: int
    end: int
    what: str
    got: str
    expected: str
    remedy: str
    log10_odds: float | None
    time: float  # seconds since 1970, UTC

    @classmethod
    def of(cls, event: Event) -> "Told":
        """A finding from its event."""
        told = {item.name: event.payload.get(item.name, MISSING) for item in fields(cls)}
        told |= {"time": event.time}
        if missing := [name for name, value in told.items() if value is MISSING]:
            raise RecordError("a finding in events.jsonl is not whole", got=f"no {', '.join(missing)}")
        return cls(**told | {"verdict": Verdict(told["verdict"])})


@dataclass(frozen=True)
class Glance:
    """The facts of a first screen."""

    name: str
    state: State
    why: str  # it is in that state, where there is more to say
    stages: tuple[tuple[str, int, int], ...]  # each with the updates it has, and is to have
    reward: Interval | None  # mean of the last updates of the last stage that has any, by their spread
    evaluations: Mapping[str, Interval]
    findings: tuple[Told, ...]  # one for each rule, the strongest first
    incidents: int
    seconds: float  # that updates took
    tokens: float  # that the policy drew
    tokens_per_s: float  # of the last update; NaN before it
    loss: str  # what the last one meant
    left: float  # seconds until its stage is done, at the pace of the last updates; NaN where it stands still

    @property
    def at(self) -> tuple[str, int, int] | None:
        """The stage that the run is in, or ended in; None before the first update."""
        return next((each for each in reversed(self.stages) if each[1]), None)


def glance(run: Followed) -> Glance:
    """Everything at the first screen, as of the run's last refresh."""
    columns, found = run.columns, findings(run.events)
    state, why = _state(run, found)
    reward_N = rewards(columns)[-LAST:]
    stages = _stages(run.facts, columns)
    pace_N = update_seconds(columns)
    here = next((each for each in reversed(stages) if each[1]), None)
    left = (here[2] - here[1]) * float(pace_N[-LAST:].mean()) if here and state == "running" else math.nan
    return Glance(
        name=str(run.facts.get("name", run.run_dir.name)),
        state=state,
        why=why,
        stages=stages,
        reward=_mean(reward_N) if len(reward_N) else None,
        evaluations={name: _estimate(told) for name, told in evaluations_told(run.events).items()},
        findings=found,
        incidents=sum(event.kind == "incident" for event in run.events),
        seconds=float(pace_N.sum()),
        tokens=float(np.nansum(columns.column("tokens/sampled"))),
        tokens_per_s=float(columns.column("throughput/tokens_per_s")[-1]) if len(columns) else math.nan,
        loss=columns.label[-1].as_py() if len(columns) else "",
        left=left,
    )


def findings(events: Sequence[Event]) -> tuple[Told, ...]:
    """What rules found: of each rule the strongest and earliest, the strongest rules first."""
    strength = list(FINDINGS).index
    told = [Told.of(event) for event in events if event.kind == "finding" and "code" in event.payload]
    told = sorted(
        (each for each in told if each.verdict in FINDINGS), key=lambda each: strength(each.verdict)
    )
    by_code: dict[str, Told] = {}
    for each in told:
        by_code.setdefault(each.code, each)
    return tuple(by_code.values())


def update_seconds(columns: Columns) -> NDArray[np.float64]:
    """What each update took, all phases, [n] seconds."""
    phases = [values for name, values in columns.numbers.items() if name.startswith("seconds/")]
    return np.nansum(phases, axis=0) if phases else np.zeros(len(columns))


def rewards(columns: Columns) -> NDArray[np.float64]:
    """The mean reward of each update of the last stage that has any, [n]."""
    for _, start, end in reversed(columns.stages):
        reward_N = columns.column("reward/mean")[start:end]
        reward_N = reward_N[~np.isnan(reward_N)]
        if len(reward_N):
            return reward_N
    return np.empty(0)


def _state(run: Followed, found: Sequence[Told]) -> tuple[State, str]:
    """Whether it goes on, and how it ended."""
    end = next((event for event in reversed(run.events) if event.kind in ENDS), None)
    kind: str = "" if end is None else end.kind
    told: Mapping[str, Any] = {} if end is None else end.payload
    if kind == "finished":
        return "finished", ""
    if run.written:
        return "running", ""
    if kind == "gave_up":
        return "given up", told["reason"]
    if kind != "stopped":
        return "crashed", SILENT
    if told["error"] == "ProvenError" and found:
        return "stopped by a finding", f"{found[0].code} {found[0].name}: {found[0].what}"
    return (
        ("stopped", "somebody stopped it")
        if told["error"] == "KeyboardInterrupt"
        else ("crashed", told["reason"])
    )


def _stages(facts: Mapping[str, Any], columns: Columns) -> tuple[tuple[str, int, int], ...]:
    """Each stage of the recipe with the updates that are on record, and those that it is to have."""
    done = {name: int(columns.step[end - 1]) + 1 for name, _, end in columns.stages}
    recipe = facts.get("recipe", {})
    return tuple((name, done.get(name, 0), recipe[name]["steps"]) for name in recipe.get("stages", ()))


def _mean(values_N: NDArray[np.float64]) -> Interval:
    """A mean and Student's interval."""
    mean, count = float(values_N.mean()), len(values_N)
    if count < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, count - 1) * values_N.std(ddof=1) / math.sqrt(count))
    return Interval(mean, mean - half, mean + half)


def _estimate(told: Mapping[str, Any]) -> Interval:
    return Interval(**floats_from_json({name: told["estimate"][name] for name in ("mean", "low", "high")}))
