"""Kills runs, opens what they leave, resumes them, and compares their end with one of no kills."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dev.measure.chaos.forks import End, run_forked
from dev.measure.chaos.starts import NO_PLAN, first_start, resumed_start
from dev.measure.chaos.variants import VARIANTS, ranks_of, table_of
from dev.measure.chaos.write_points import FAILURES, Plan
from truing.learner.checkpoint import find_newest
from truing.record import RunReader

Steps = set[tuple[str, int]]
"""Stages and steps."""

AGAIN = 0.8
"""Probability that a resumed run is killed again."""

VICTIMS = ("group", "launcher", "rank")
"""Which processes of a run with ranks are killed at a moment."""

MAX_KILLS = 8
"""Of one run."""

KILLED, REFUSED = -9, 2
"""Exit codes of a kill, and of an error of Truing."""

EFFECTS = {"kill": 0.5, "full": 0.1, "read-only": 0.05, "moment": 0.35}
"""What happens to a start, and how often: three at a write, and a kill at a random moment."""


@dataclass
class Figures:
    """What was counted of a variant."""

    at_writes: int = 0  # kills
    at_moments: int = 0
    failed: int = 0  # starts whose writes failed
    resumed: int = 0  # of these kills, those of a resumed run
    runs: int = 0
    equal: int = 0  # runs whose end was that of the reference
    seconds: float = 0.0
    points: set[int] = field(default_factory=set[int])  # writes at which a first start was killed
    kinds: Counter[str] = field(default_factory=Counter[str])  # kills by the kind of write
    violations: list[str] = field(default_factory=list[str])

    @property
    def kills(self) -> int:
        """Return the number of kills."""
        return self.at_writes + self.at_moments


class Variant:
    """A recipe that is trained once without a kill, and then again and again with kills."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name, self.folder = name, folder / name.replace(" ", "-")
        self.run, self.reference, self.log = (self.folder / each for each in ("run", "reference", "log"))
        self.stages = table_of(name)["stages"]
        self.random, self.figures = random.Random(f"{seed} {name}"), Figures()
        self.folder.mkdir()
        self.writes, self.duration = 0, 0.0
        self._points: Iterator[int] = iter(())

    def train_reference(self) -> None:
        """Train without a kill; count the writes and seconds."""
        end = run_forked(partial(first_start, name=self.name, run=self.reference), self.log)
        if end.exit_code:
            raise RuntimeError(f"{self.name} ended with {end.exit_code}:\n{end.printed[-3000:]}")
        self.writes, self.duration = max(count for (count,) in end.of_kind("writes")), end.seconds
        saved = [event.payload for event in RunReader(self.reference).events() if event.kind == "checkpoint"]
        if len({each["weight_digest"] for each in saved}) < len({each["name"] for each in saved}):
            raise RuntimeError(f"a step of {self.name} changes no weight, so its loss would not show")

    def kill_one_run(self) -> None:
        """Train a run that is killed, resumed, perhaps killed again, and resumed to its end."""
        shutil.rmtree(self.run, ignore_errors=True)
        before, announced = len(self.figures.violations), set[tuple[str, int]]()
        for number in range(MAX_KILLS + 1):
            end = self._start(number, announced)
            self._count(end, number)
            if number and not end.of_kind(
                "undone"
            ):  # it may have ended while it undid what no checkpoint has
                announced = kept_by_checkpoint(self.run, announced, self.stages)
            announced = recorded(announced, end, self.stages)
            if end.exit_code not in (KILLED, REFUSED) or end.hung:
                break
        self.figures.runs += 1
        self.figures.equal += len(self.figures.violations) == before

    def _start(self, number: int, announced: set[tuple[str, int]]) -> End:
        """Start the run, or resume it after ``number`` kills; plan the next kill, if any."""
        plan, after, victim = NO_PLAN, None, "group"
        if number == 0 or (number < MAX_KILLS and self.random.random() < AGAIN):
            (effect,) = self.random.choices(list(EFFECTS), list(EFFECTS.values()))
            if effect == "moment":
                after = self.random.random() * self.duration
                victim = self.random.choice(VICTIMS) if ranks_of(self.name) > 1 else "group"
            elif effect == "kill" or ranks_of(self.name) == 1:
                at = self._next_point() if number == 0 else self.random.randint(1, self.writes // 2)
                plan = Plan(at, effect)
        if number == 0 or not self.run.exists() or not any(self.run.iterdir()):
            work = partial(first_start, name=self.name, run=self.run, plan=plan)
        else:
            work = partial(
                resumed_start,
                name=self.name,
                run=self.run,
                reference=self.reference,
                announced=announced,
                plan=plan,
            )
        return run_forked(work, self.log, after, victim)

    def _next_point(self) -> int:
        """Return a write at which no first start was killed yet; once all were, each again."""
        point = next(self._points, 0)
        if not point:
            self._points = iter(self.random.sample(range(1, self.writes + 1), self.writes))
            point = next(self._points)
        self.figures.points.add(point)
        return point

    def _count(self, end: End, number: int) -> None:
        """Add a start to the figures."""
        figures = self.figures
        figures.seconds += end.seconds
        figures.violations += [
            f"{self.name}, after {number} kills: {text}" for (text,) in end.of_kind("violation")
        ]
        if end.hung:
            figures.violations.append(f"{self.name}: hung after {number} kills\n{end.printed[-2000:]}")
        elif end.exit_code == KILLED:
            kinds = [kind for (kind,) in end.of_kind("kill")]
            figures.at_writes += bool(kinds)
            figures.at_moments += not kinds
            figures.resumed += number > 0
            figures.kinds.update(kinds)
        elif end.exit_code == REFUSED and end.of_kind("error"):
            figures.failed += 1
            if not any(
                os.strerror(number) in text
                for number in FAILURES.values()
                for (text,) in end.of_kind("error")
            ):
                figures.violations.append(
                    f"{self.name}: an error that does not name its cause: {end.messages}"
                )
        elif end.exit_code:
            figures.violations.append(
                f"{self.name}: exit code {end.exit_code} after {number} kills\n{end.printed[-2000:]}"
            )


def kept_by_checkpoint(run: Path, announced: Steps, stages: Sequence[str]) -> Steps:
    """Return the steps that a run resumes after: those of its newest checkpoint."""
    newest = find_newest(run / "checkpoints")
    if newest is None:
        return set()
    stage, _, count = newest.name.rpartition("-")
    return _before(announced, stages, stage, int(count))


def recorded(announced: Steps, end: End, stages: Sequence[str]) -> Steps:
    """Return the steps that a run has said to be recorded and not undone since."""
    known = set(announced)
    for kind, *place in end.messages:
        if kind == "step":
            known.add(tuple(place))
        elif kind == "undone":
            known = _before(known, stages, *place)
    return known


def _before(steps: Steps, stages: Sequence[str], stage: str, step: int) -> Steps:
    """Return the steps before one of a stage: the stages after it are undone with it."""
    place = (stages.index(stage), step)
    return {each for each in steps if (stages.index(each[0]), each[1]) < place}


def campaign(folder: Path, names: list[str], seed: int) -> Iterator[Variant]:
    """Kill runs without an end, each variant for as long; yield the variant after each run."""
    variants = [Variant(name, folder, seed) for name in names or VARIANTS]
    while True:
        variant = min(variants, key=lambda each: each.figures.seconds)  # so that quick ones have more kills
        if not variant.writes:
            variant.train_reference()
        variant.kill_one_run()
        yield variant
