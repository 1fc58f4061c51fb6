"""Trains forks of a run in pairs, one unchanged and one of each arm, until one helps or time is up."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from truing.api import fork
from truing.config import PolicyStage, Recipe
from truing.doctor.causes.explain import why
from truing.doctor.causes.history import History
from truing.errors import LabError, RecipeError, RecordError
from truing.lab.forks.arms import Arm, arms_of, confounded, fork_step
from truing.lab.forks.plan import PLAN, Plan, fork_reward, read_plan
from truing.lab.forks.result import EVERY_ARM, MOST_PAIRS, ArmResult, error_of, rounds_of, tried
from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.power import evaluation_noise, min_detectable_excess, training_noise
from truing.learner.checkpoint import saved_steps
from truing.record.store import RUN
from truing.utils.atomic_files import write_atomically
from truing.utils.jsonl import dump_json

TrainFork = Callable[[Path], str]
"""Trains a fork to its end; returns the last line of what went wrong, or ""."""


class Experiment:
    """An experiment on a run, in a folder of its own; repeated, it goes on with what is missing."""

    def __init__(self, history: History, folder: Path, steps: int, train: TrainFork) -> None:
        """Read the plan of the folder, or make and write it.

        Raises:
            LabError: The run cannot be forked.
        """
        self.history, self.folder, self.train = history, folder, train
        self.failed: dict[str, str] = {}  # arms with a fork that did not end, and its last line
        self._rewards = dict[str, float]()  # of finished forks
        self.round_minutes = list[float]()  # of the rounds of forks so far: they start, train and evaluate
        if (folder / PLAN).exists():
            self.plan = read_plan(folder)
        else:
            self.plan = self._planned(steps)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / PLAN, dump_json(asdict(self.plan), indent=2))

    def _planned(self, steps: int) -> Plan:
        """Choose arms, and keep those that a fork can have."""
        history = self.history
        if not (kept := saved_steps(history.source / "checkpoints", history.stage)):
            raise LabError(
                f"{history.source} has no checkpoint of {history.stage}", remedy="train until the first one"
            )
        at, arms, left_out = fork_step(history, kept), list[Arm](), list[str]()
        for arm in arms_of(history, why(history)):
            probe = self.folder / ".probe"
            if keys := confounded(arm, history.facts.recipe):
                left_out.append(
                    f"{arm.name}: {' '.join(keys)} would change what is measured, too: train anew"
                )
                continue
            try:
                fork(history.source, probe, arm.changes, at, history.stage, check_only=True)
                arms.append(arm)
            except (RecipeError, RecordError) as error:
                left_out.append(f"{arm.name}: {error.what}")
        if not arms:
            raise LabError("no change of the recipe can be tried in a fork", got="; ".join(left_out))
        seconds = [sum(row.seconds.values()) for row in history.steps]
        evaluation = history.facts.evaluation_seconds
        fork_seconds = steps * math.fsum(seconds) / len(seconds) + (
            0.0 if math.isnan(evaluation) else evaluation
        )
        noise = _noise(history.facts.recipe, history.stage, steps)
        return Plan(history.stage, at, steps, tuple(arms), tuple(left_out), fork_seconds / 60, noise)

    def run(
        self, minutes: float, jobs: int, on_pair: Callable[[int, Sequence[ArmResult]], object]
    ) -> list[ArmResult]:
        """Train pairs until an arm is proven to help, all are decided, or time is up; return their results.

        The first pairs have every arm, later ones the arms that may still help: ``tried``.
        """
        deadline = time.monotonic() + 60 * minutes
        for pair in range(MOST_PAIRS):
            before = self.plan.results(self._reward, pair)
            arms = tried([each for each in before if each.arm.name not in self.failed], pair)
            missing = [arm for arm in (None, *arms) if not self._is_finished(arm, pair)]
            if not arms or any(each.verdict == "helps" for each in before):
                break
            if missing:
                rounds, started = math.ceil(len(missing) / jobs), time.monotonic()
                if started + 60 * rounds * self.fork_minutes > deadline:
                    break
                with ThreadPoolExecutor(jobs) as pool:
                    list(pool.map(partial(self._train, pair), missing))
                self.round_minutes.append((time.monotonic() - started) / 60 / rounds)
                on_pair(pair, self.results())
        return self.results()

    @property
    def fork_minutes(self) -> float:
        """Return the minutes of a fork: measured, or before the first by the seconds of the run's steps."""
        known = self.round_minutes
        return math.fsum(known) / len(known) if known else self.plan.fork_minutes

    def results(self) -> list[ArmResult]:
        """Return the result of each arm, of the forks that are finished."""
        return self.plan.results(self._reward)

    def _is_finished(self, arm: Arm | None, pair: int) -> bool:
        return not math.isnan(self._reward(self._name(arm, pair)))

    def _name(self, arm: Arm | None, pair: int) -> str:
        return self.plan.fork_name(arm.name if arm else "", pair)

    def _reward(self, name: str) -> float:
        """Return the reward of a fork, read once it is finished; NaN before."""
        out = self.folder / name
        if name not in self._rewards and (out / RUN).exists():
            reward = fork_reward(out, self.plan)
            if math.isnan(reward):
                return reward
            self._rewards[name] = reward
        return self._rewards.get(name, math.nan)

    def _train(self, pair: int, arm: Arm | None) -> None:
        """Fork, unless a fork is there, and train in a process of its own.

        Raises:
            LabError: The unchanged fork does not end.
        """
        out, plan = self.folder / self._name(arm, pair), self.plan
        recipe = self.history.facts.recipe
        if not out.exists():
            stages = [*recipe.stages[: recipe.stages.index(plan.stage) + 1]]
            common = {
                "seed": recipe.seed + 1 + pair,  # draws and tasks of the pair
                f"{plan.stage}.steps": plan.at + plan.steps,
                "stages": json.dumps(stages),
                "checkpoint_every": 0,
                "eval.every": 0,
            }
            changes = [*(f"{key}={value}" for key, value in common.items()), *(arm.changes if arm else ())]
            fork(self.history.source, out, changes, plan.at, plan.stage)
        last = self.train(out)
        if not self._is_finished(arm, pair):
            if arm is None:
                raise LabError(f"the unchanged fork {out} did not end", got=last or "no output")
            self.failed[arm.name] = last


def train_by_command(out: Path) -> str:
    """Train a fork in a process of its own, with its output in the fork's directory."""
    recipe, words = str(out / "recipe.toml"), ("--out", str(out), "--resume")
    with (out / "output.txt").open("ab") as output:
        command = [sys.executable, "-m", "truing", "train", recipe, *words]
        subprocess.run(command, stdout=output, stderr=output, check=False)
    lines = (out / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _noise(recipe: Recipe, stage: str, steps: int) -> float:
    """Return the deviation of what ``Experiment`` compares, from sampling alone."""
    if recipe.eval.tasks:
        return evaluation_noise(recipe.eval.tasks, recipe.eval.samples)
    cfg = recipe.stage(stage)
    assert isinstance(cfg, PolicyStage)
    return training_noise(cfg.prompts_per_step, cfg.group_size, steps - steps // 2)


def plan_lines(plan: Plan, minutes: float, jobs: int) -> Iterator[str]:
    """Yield what an experiment will do, and how many pairs the time allows."""
    yield (
        f"forks after step {plan.at} of {plan.stage}, {plan.steps} more steps each, in pairs with an"
        " unchanged one:"
    )
    for arm in plan.arms:
        yield f"  {' '.join(arm.changes)}: {arm.name} ({arm.because})"
    for text in plan.left_out:
        yield f"  left out: {text}"
    takes = [rounds_of(pairs, len(plan.arms), jobs) * plan.fork_minutes for pairs in range(MOST_PAIRS + 1)]
    pairs = sum(each <= minutes for each in takes) - 1
    yield (
        f"a pair of each arm takes about {takes[1]:.1f} minutes: up to {pairs} pairs in {minutes:g} minutes;"
        f" after {EVERY_ARM} pairs, only the best arms get more"
    )
    error = error_of(len(plan.arms))
    if pairs < (needed := min_pairs(error)):
        enough = math.ceil(takes[needed])
        yield f"they decide nothing: that takes at least {needed} pairs, with --minutes {enough}"
    elif (effect := min_detectable_excess(plan.noise, pairs, error)) < math.inf:
        yield f"they show an effect of {effect:.2g} in four of five cases, by the noise of sampling alone"


def facts(plan: Plan, results: Sequence[ArmResult]) -> Mapping[str, object]:
    """Return plan and results as JSON."""
    arms = [
        {"verdict": each.verdict, "differences": each.differences, **asdict(each.arm)} for each in results
    ]
    return {"stage": plan.stage, "at": plan.at, "steps": plan.steps, "arms": arms, "left_out": plan.left_out}
