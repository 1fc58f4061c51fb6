"""What is on record of the stage that is explained: of a run, or of another trainer's log."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from truing.analysis.evaluation import Evaluation
from truing.analysis.stage_gain import stage_gain
from truing.doctor.causes.outcome import Outcome, fault_of, loss_text
from truing.doctor.causes.run_facts import RunFacts
from truing.doctor.causes.trend import RECENT_STEPS, Trend, error_of_mean, length_text, reward_trend
from truing.doctor.diagnosis import Diagnosis, is_finding
from truing.doctor.levels import MIN_WINDOW, change_point
from truing.doctor.verdict import Verdict
from truing.metrics.aliases import PART
from truing.types.reward_parts import main_parts
from truing.types.sample import SampleFacts
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

NEARLY_ALL = 0.9
"""Of the answers."""

ERRORS = 4.0
"""Standard errors of a break, of which the best of many is taken."""

FAR_LESS = 20.0
"""The factor between deviations of two parts of a reward of which the smaller one hardly counts."""

PAID = 0.1
"""The deviation of a part that pays 1 for one answer of a hundred: smaller parts shape the reward."""

VARIED = 0.25
"""Of a part's mean: with a smaller deviation nearly all rollouts earn it."""

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
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # ours → theirs, of a log
    evaluated: Mapping[str, Trend] = field(default_factory=dict[str, Trend])  # scores that a log has
    epochs: Mapping[str, float] = field(default_factory=dict[str, float])  # the most, by a log's name

    @cached_property
    def rewarded(self) -> list[StepNumbers]:
        """The steps with a reward."""
        return [row for row in self.steps if math.isfinite(row.metrics.get("reward/mean", math.nan))]

    @property
    def length(self) -> str:
        """How many steps there are, as text."""
        return length_text([row.step + 1 for row in self.steps])

    @property
    def leaves_out_steps(self) -> bool:
        """Whether records are further apart than a step, as where a trainer logs every tenth."""
        return self.steps[-1].step - self.steps[0].step >= len(self.steps)

    @cached_property
    def trend(self) -> Trend:
        """The trend of the mean reward."""
        return reward_trend(
            [row.metrics["reward/mean"] for row in self.rewarded],
            [row.step + 1 for row in self.rewarded],
            [error_of_mean(row.metrics) for row in self.rewarded],
        )

    @cached_property
    def outcome(self) -> Outcome:
        """The trend of the reward and the gain of the evaluations."""
        fault = fault_of(self.diagnosis) or self._no_gradient or self._empty
        second = [each for evaluation in self.evaluations if (each := evaluation.by_second_grader())]
        gains = stage_gain(self.evaluations), stage_gain(second)
        hacked = any(name in self.main_parts for name in self.falling)
        parts = self.unearned, self.falling
        loss = loss_text(self._all("loss/supervised"), self.length) if self.kind == "sft" else ""
        return Outcome(self.trend, *gains, *parts, fault, hacked, self.evaluated, self.outweighed, loss)

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
        """The parts of a rising reward that fall, without those that the recipe says to shape it."""
        if not self.trend.rises or len(self.part_trends) < 2:
            return {}
        fell = {name: each for name, each in self.part_trends.items() if each.falls}
        if self.run is None:
            return fell
        shaping, weights = self.run.recipe.doctor.shaping, self.run.weights
        return {name: fell[name] for name in fell if name not in shaping and weights.get(name, 0.0) > 0}

    @property
    def outweighed(self) -> dict[str, Trend]:
        """The parts of a rising reward that do not rise, beside one that deviates far more; of a log."""
        deviations = {name: _mean(self._all(f"part_std/{name}")) for name in self.part_trends}
        largest = max((x for x in deviations.values() if math.isfinite(x)), default=math.nan)
        return {
            name: each
            for name, each in self.part_trends.items()
            if self.trend.rises
            and not each.rises
            and FAR_LESS * deviations[name] < largest
            and deviations[name] > max(PAID, VARIED * abs(each.last))
        }

    def column(self, name: str) -> str:
        """Return the name of a metric in the log; ours if it is not of one."""
        return self.columns.get(name, name)

    def _all(self, name: str) -> list[float]:
        return [row.metrics[name] for row in self.steps if name in row.metrics]

    @cached_property
    def broke(self) -> int:
        """The steps with a reward before it fell; 0 if it did not.

        Where an evaluation alone shows a fall, it is the break that fits the rewards best, if noise has none.
        """
        if self.trend.broke or not self.outcome.worse or self.trend.steps <= MIN_WINDOW:
            return self.trend.broke
        rewards = [row.metrics["reward/mean"] for row in self.rewarded]
        before, after = rewards[: (place := change_point(rewards))], rewards[place:]
        noise = statistics.pstdev(after) * math.sqrt(1 / len(before) + 1 / len(after))
        return place if statistics.fmean(before) - statistics.fmean(after) > ERRORS * noise else 0

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
    def kind(self) -> str:
        """Return ``sft`` or ``rft`` of a stage with a loss on demonstrations alone, else ``policy``."""
        return self.stage if self.run is not None and self.stage in ("sft", "rft") else "policy"

    @property
    def grouped(self) -> bool:
        """Whether rollouts are compared within groups, or may be."""
        return self.run is None or self.stage in ("grpo", "rloo")

    @property
    def demonstrated(self) -> list[float]:
        """What demonstrations earned in the check at the start."""
        return [x for each in (self.run.demonstrated.values() if self.run else ()) for x in each]

    @property
    def floor(self) -> float:
        """What the worst rollouts on record earn, at most 0: an answer that earns no more earns nothing."""
        return min([0.0, *(each.reward for each in self.samples if math.isfinite(each.reward))])

    def suspects(self, code: str) -> bool:
        """Return whether a rule has a finding."""
        return any(each.code == code and is_finding(each) for each in self.diagnosis.results())

    @property
    def main_parts(self) -> tuple[str, ...]:
        """The parts of the reward with the largest weight, without those that only shape it."""
        return main_parts(self.run.weights, self.run.recipe.doctor.shaping) if self.run else ()


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
