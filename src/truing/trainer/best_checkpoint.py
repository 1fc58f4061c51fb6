"""The best checkpoint of a stage: the scores that choose it, and what is reported of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from truing.analysis.estimate import Interval
from truing.analysis.evaluation import Evaluation
from truing.analysis.task_halves import choosing_mean, reported_estimate
from truing.config import Recipe
from truing.record import Event
from truing.utils.jsonl import floats_from_json


def losses_of(events: Iterable[Event]) -> dict[int, Mapping[str, float]]:
    """Return the losses on demonstrations in events, by step; a step that was repeated has the later one."""
    payloads = [event.payload for event in events if event.kind == "eval_loss"]
    return {
        each["step"]: floats_from_json({name: each.get(name) for name in ("choosing", "reported")})
        for each in payloads
    }


class PolicyScores:
    """What a run measured of the policies of its stages: evaluations by name, and SFT's losses by step."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.evaluations: dict[str, Evaluation] = {}
        self.losses: dict[int, Mapping[str, float]] = {}  # of each half of the tasks: choosing, reported

    def by_step(self, stage: str) -> dict[int, float]:
        """Return the score of each policy of a stage on the half of the tasks that chooses: larger is better.

        The score is the mean reward; of SFT without evaluations between its steps, the loss with its sign
        turned.
        """
        if self._by_loss(stage):
            scores = {step: -each["choosing"] for step, each in self.losses.items()}
        else:
            scores = {step: choosing_mean(each) for step, each in self._evaluations(stage).items()}
        return {step: score for step, score in scores.items() if step and not math.isnan(score)}

    def report(self, stage: str, best: int, last: int) -> dict[str, Any]:
        """Return the facts of the event ``best``: its step and the last, on the tasks that did not choose."""
        kind = "loss" if self._by_loss(stage) else "reward"
        of_best, of_last = (self._reported(stage, step) for step in (best, last))
        text = (
            f"best of {stage} by its evaluations: step {best}, chosen on one half of the evaluation tasks."
            f" On the other half its {kind} is {of_best}, and {of_last} after the last step ({last})"
        )
        facts = {"best": asdict(of_best), "last": asdict(of_last), "text": text}
        return {"stage": stage, "step": best, "by": kind} | facts

    def _reported(self, stage: str, step: int) -> Interval:
        """Return the reward or loss of a policy on the half of the tasks that does not choose."""
        if self._by_loss(stage):
            return Interval(self.losses[step]["reported"], math.nan, math.nan)
        return reported_estimate(self._evaluations(stage)[step])

    def _by_loss(self, stage: str) -> bool:
        return stage == "sft" and bool(self.recipe.stage("sft").eval_every) and not self.recipe.eval.every

    def _evaluations(self, stage: str) -> dict[int, Evaluation]:
        """Return the evaluations of a stage by the steps that were done."""
        return {each.step: each for each in self.evaluations.values() if each.stage == stage}
