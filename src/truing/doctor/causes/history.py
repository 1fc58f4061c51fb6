"""What is on record of the last stage with a policy loss: of a run, or of another trainer's log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from truing.analysis.current_events import fork_start
from truing.analysis.evaluation import Evaluation
from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.config import PolicyStage, resolve
from truing.doctor.causes.outcome import Outcome, fault_of
from truing.doctor.causes.run_facts import RunFacts
from truing.doctor.causes.trend import RECENT_STEPS, Trend, length_text, reward_trend
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import Step
from truing.doctor.importers.diagnose_log import LogDiagnosis
from truing.doctor.levels import MIN_WINDOW, change_point
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.metrics.aliases import PART
from truing.record import RunReader
from truing.types.reward_parts import main_parts
from truing.types.sample import SampleFacts
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

NEARLY_ALL = 0.9
"""Of the answers."""

CERTAIN = 1e-6
"""Nats per token, below which the policy is certain: log-probabilities are 0, and so is their gradient."""


def has_signal(row: StepNumbers) -> bool:
    """Return whether the rewards of a step ask for a gradient."""
    largest, deviation = (row.metrics.get(name, math.nan) for name in ("advantage/max_abs", "reward/std"))
    differs = largest > 0 if math.isfinite(largest) else deviation != 0  # of a log both may be unknown
    certain = row.metrics.get("entropy/sampled", math.nan) < CERTAIN
    tied, trained = row.metrics.get("group/zero_variance_share"), row.metrics.get("tokens/trained")
    return differs and tied != 1 and trained != 0 and not certain


@dataclass(frozen=True, eq=False)
class History:
    """The steps of a stage. Metrics are by our names; what is unknown is missing."""

    source: Path  # the run directory, or the log
    stage: str
    steps: Sequence[StepNumbers]
    diagnosis: Diagnosis
    run: RunFacts | None = None  # None for a log
    samples: Sequence[SampleFacts] = ()  # of the last steps that count: see ``counted``
    evaluations: Sequence[Evaluation] = ()  # before, within and after the stage, in order
    trainer: str = "truing"

    @cached_property
    def rewarded(self) -> list[StepNumbers]:
        """The steps with a reward."""
        return [row for row in self.steps if math.isfinite(row.metrics.get("reward/mean", math.nan))]

    @property
    def length(self) -> str:
        """How many steps there are, as text."""
        return length_text([row.step + 1 for row in self.steps])

    @cached_property
    def trend(self) -> Trend:
        """The trend of the mean reward."""
        return reward_trend(
            [row.metrics["reward/mean"] for row in self.rewarded],
            [row.step + 1 for row in self.rewarded],
            [_error_of_mean(row.metrics) for row in self.rewarded],
        )

    @cached_property
    def outcome(self) -> Outcome:
        """The trend of the reward and the gain of the evaluations."""
        fault = fault_of(self.diagnosis) or self._no_gradient or self._empty
        second = [each for evaluation in self.evaluations if (each := evaluation.by_second_grader())]
        gains = stage_gain(self.evaluations), stage_gain(second)
        return Outcome(self.trend, *gains, self.unearned, self.falling, fault, known=self.run is not None)

    @property
    def _no_gradient(self) -> str:
        """Return that no step with a signal has a gradient, as text; "" if some has."""
        rows = [row for row in self.steps if "grad/norm" in row.metrics and has_signal(row)]
        if len(rows) < 2 or any(row.metrics["grad/norm"] for row in rows):
            return ""
        return f"the gradient norm is exactly 0 in all of {with_count(len(rows), 'step')}"

    @property
    def _empty(self) -> str:
        """Return that nearly all answers are empty, as text; "" if they are not."""
        graded = [each for each in self.samples if math.isfinite(each.reward)]
        empty = sum(not each.text.strip() for each in graded)
        said = f"{empty} of the last {with_count(len(graded), 'answer')} are empty"
        return said if empty > NEARLY_ALL * len(graded) else ""

    @property
    def unearned(self) -> tuple[str, ...]:
        """The parts of the reward with the largest weight of which no rollout earned anything."""
        series = {name: self._all(f"{PART}{name}") for name in self.main_parts}
        return tuple(name for name, values in series.items() if values and not any(values))

    @cached_property
    def part_trends(self) -> dict[str, Trend]:
        """The trend of each part of the reward, over the steps that have it."""
        names = dict.fromkeys(name for row in self.steps for name in row.metrics if name.startswith(PART))
        rows = {
            name: [row for row in self.steps if math.isfinite(row.metrics.get(name, math.nan))]
            for name in names
        }
        return {
            name.removeprefix(PART): reward_trend(
                [row.metrics[name] for row in known], [row.step + 1 for row in known]
            )
            for name, known in rows.items()
        }

    @property
    def falling(self) -> dict[str, Trend]:
        """The parts of a rising reward that fall: of those with the largest weight, or of a log any."""
        if not self.trend.rises or len(self.part_trends) < 2:
            return {}
        judged = self.main_parts if self.run else tuple(self.part_trends)
        return {name: each for name, each in self.part_trends.items() if name in judged and each.falls}

    def _all(self, name: str) -> list[float]:
        return [row.metrics[name] for row in self.steps if name in row.metrics]

    @cached_property
    def broke(self) -> int:
        """The steps with a reward before it fell; 0 if it did not.

        Where an evaluation alone shows a fall, it is the break that fits the rewards best.
        """
        if self.trend.broke or not self.outcome.worse or self.trend.steps <= MIN_WINDOW:
            return self.trend.broke
        return change_point([row.metrics["reward/mean"] for row in self.rewarded])

    @cached_property
    def counted(self) -> Sequence[StepNumbers]:
        """The steps that a cause is judged by: those before the reward fell, or all.

        What changes with the fall, or after it, is not a cause of it.
        """
        return self.rewarded[: self.broke] if self.broke else self.steps

    def series(self, name: str) -> list[float]:
        """Return the known values of a metric over the counted steps."""
        values = (row.metrics.get(name, math.nan) for row in self.counted)
        return [value for value in values if math.isfinite(value)]

    @property
    def entropy(self) -> list[float]:
        """The known entropies of all steps, nats per token: sampled, or of a log as it has them."""
        rows = (row.metrics.get("entropy/sampled", row.metrics.get("entropy/mean")) for row in self.steps)
        return [value for value in rows if value is not None and math.isfinite(value)]

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the counted steps; NaN if unknown."""
        return _mean(self.series(name))

    def late(self, name: str) -> float:
        """Return its mean over the last counted steps; NaN if unknown."""
        return _mean(self.series(name)[-RECENT_STEPS:])

    def after(self, name: str) -> float:
        """Return its mean over the last steps of all; NaN if unknown."""
        values = (row.metrics.get(name, math.nan) for row in self.steps[-RECENT_STEPS:])
        return _mean([value for value in values if math.isfinite(value)])

    def has(self, need: str) -> bool:
        """Return whether the record has what a cause needs."""
        match need:
            case "recipe":
                return self.run is not None
            case "samples" | "evaluations" | "entropy":
                return bool(getattr(self, need))
            case _:
                return bool(self.series(need))

    @property
    def facts(self) -> RunFacts:
        """What the run directory has: for causes that need ``recipe``."""
        assert self.run is not None
        return self.run

    @property
    def rate(self) -> float:
        """The declared peak learning rate, or the largest on record; NaN if unknown."""
        if self.run is not None and (declared := self.run.recipe.stage(self.stage).learning_rate):
            return declared
        return max(self.series("lr"), default=math.nan)

    @property
    def pays(self) -> bool | None:
        """Whether any answer was paid: of a rollout, an evaluation or a demonstration; None if unknown."""
        rewards = [sample.reward for sample in self.samples if math.isfinite(sample.reward)]
        rewards += [reward for each in self.evaluations for reward in each.reward.values()]
        rewards += self.series("reward/mean")
        rewards += self.demonstrated
        return max(rewards) > min(0.0, *rewards) if rewards else None

    @classmethod
    def from_run(cls, run: Path, diagnosis: Diagnosis) -> "History":
        """Read a run with its diagnosis."""
        reader = RunReader(run)
        recipe, recorded, events = resolve(reader.run_fact("recipe")), reader.steps(), reader.events()
        if not recorded:
            raise reader.no_step_error()
        stages = [row.stage for row in recorded if isinstance(recipe.stage(row.stage), PolicyStage)]
        if not stages:
            raise RecordError(
                f"{run} has no step with a reward yet",
                expected="reinforce, rloo, grpo or ppo",
                got=recipe.stages,
            )
        stage = stages[-1]
        start = fork_start(events, stage)
        steps = [row for row in recorded if row.stage == stage and row.step >= start]
        if not steps:
            raise RecordError(
                f"{run} has trained no step yet",
                got=f"the {start} steps of {stage} of the run that it is forked from",
                remedy=f"truing train {run / 'recipe.toml'} --out {run} --resume",
            )
        history = cls(
            run,
            stage,
            steps,
            diagnosis,
            RunFacts.read(reader, recipe, recorded, stage),
            evaluations=stage_evaluations(stage, recipe.stages, events),
        )
        counted = {row.step for row in history.counted[-RECENT_STEPS:]}
        tables = (reader.table(row) for row in steps if row.step in counted)
        return replace(history, samples=[sample for table in tables for sample in table.samples])

    @classmethod
    def from_log(cls, path: Path, log: LogDiagnosis) -> "History":
        """Return the history of another trainer's log."""
        run = log.imported
        history = cls._of_steps(path, run.steps, log.diagnosis, run.trainer)
        if not history.rewarded:
            raise _no_reward(history, log)
        return history

    @classmethod
    def from_trace(cls, folder: Path, steps: Sequence[Step], diagnosis: Diagnosis) -> "History":
        """Return the history of another trainer's steps."""
        history = cls._of_steps(folder, steps, diagnosis, steps[0].setup.trainer)
        if not history.rewarded:
            raise RecordError(f"{folder} has no reward", expected="`reward` in its steps")
        return history

    @classmethod
    def _of_steps(cls, path: Path, steps: Sequence[Step], diagnosis: Diagnosis, trainer: str) -> "History":
        numbers = [StepNumbers(step.stage, step.step, step.metrics) for step in steps]
        history = cls(path, steps[0].stage, numbers, diagnosis, trainer=trainer)
        counted = {row.step for row in history.counted[-RECENT_STEPS:]}
        return replace(history, samples=[s for step in steps if step.step in counted for s in _answers(step)])

    @property
    def name(self) -> str:
        """The stage, and where a fork within it begins."""
        begins = self.run.begins if self.run else 0
        return f"{self.stage} after step {begins}, where the fork begins" if begins else self.stage

    @property
    def steps_left(self) -> int:
        """The steps that the stage has not reached yet; 0 for a log, and after a fault that ended the run."""
        ended = any(
            each.verdict is Verdict.PROVEN and not each.suppressed for each in self.diagnosis.results()
        )
        if self.run is None or ended:
            return 0
        return max(0, self.run.recipe.stage(self.stage).steps - self.steps[-1].step - 1)

    @property
    def grouped(self) -> bool:
        """Whether rollouts are compared within groups, or may be."""
        return self.run is None or self.stage in ("grpo", "rloo")

    @property
    def demonstrated(self) -> list[float]:
        """What demonstrations earned in the check at the start."""
        return [x for each in (self.run.demonstrated.values() if self.run else ()) for x in each]

    @property
    def main_parts(self) -> tuple[str, ...]:
        """The parts of the reward with the largest weight, without those that only shape it."""
        return main_parts(self.run.weights, self.run.recipe.doctor.shaping) if self.run else ()


def _answers(step: Step) -> Sequence[SampleFacts]:
    """Return the samples of a step; where none has a text, each with the ids that were sampled as text."""
    if any(sample.text for sample in step.samples) or "origin" not in step.tokens:
        return step.samples
    stops = torch.tensor(step.setup.stop_ids or (), dtype=torch.int64)
    ids_N = step.tokens["token_ids"]
    said_N = step.sampled & ~torch.isin(ids_N, stops)
    return [
        replace(sample, text=" ".join(map(str, ids_N[part][said_N[part]].tolist())))
        for _, sample, part in step.slices()
    ]


def _error_of_mean(metrics: Mapping[str, float]) -> float:
    """Return the standard error of a step's mean reward; NaN if unknown.

    Rollouts of a group are alike, so that they count as half as many.
    """
    known = (metrics.get(name, math.nan) for name in ("reward/std", "tokens/sampled", "length/mean"))
    deviation, tokens, length = known
    return deviation * math.sqrt(2 * length / tokens) if tokens > 0 else math.nan


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _no_reward(history: History, log: LogDiagnosis) -> RecordError:
    """Return the error about a log without a reward that is a number."""
    run = log.imported
    broken = [row for row in history.steps if "reward/mean" in row.metrics]
    if not broken:
        return RecordError(
            f"{run.format} has no reward",
            got=", ".join(run.matched),
            expected="the mean reward of each step",
            remedy="check its other numbers with `truing check`",
        )
    return RecordError(
        f"the reward of {run.format} is never a finite number",
        got=f"{broken[0].metrics['reward/mean']:g} at step {broken[0].step + 1}, and in all of"
        f" {with_count(len(broken), 'record')}",
        expected="a mean reward in some step",
        remedy="find the reward function that returns NaN or infinity; `truing check` has the rest",
    )


def has_reward_step(run: Path) -> bool:
    """Return whether a run has a step with a reward."""
    reader = RunReader(run)
    recipe = resolve(reader.run_fact("recipe"))
    return any(isinstance(recipe.stage(row.stage), PolicyStage) for row in reader.iter_steps())
