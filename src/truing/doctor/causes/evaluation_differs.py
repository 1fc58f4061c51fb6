"""Training and evaluation have other tasks: one policy earns less on one than on the other.

Open: The first step and the evaluation before it are of nearly the same policy at the same temperature, and
differ by more than a fifth of what a rollout can earn. Or the evaluation is greedy and shows no gain, while
sampled rollouts earn more and more.
Excluded: They earn about the same.
"""

import math
from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import evaluate_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import error_of_mean
from truing.doctor.example_steps import example_evaluation

FAR = 0.2
"""Of what a rollout can earn."""

ERRORS = 3.0
"""Standard errors of the first step's mean."""

TASKS = 200
"""Of an evaluation that samples, if there are as many."""


def judge(history: History) -> Answer | None:
    """Return what the policy earns in the first step, and in the evaluation before it."""
    recipe, first, evaluation = history.facts.recipe, history.rewarded[0], history.evaluations[0]
    if answer := _greedy(history):
        return answer
    other_draws = recipe.eval.temperature != recipe.sampling.temperature or recipe.episode.force_rate > 0
    if first.step or other_draws or (evaluation.stage == history.stage and evaluation.step):
        return None
    before = evaluation.estimate()
    earned, error = first.metrics["reward/mean"], error_of_mean(first.metrics)
    because = f"the policy earns {earned:.3g} in the first step, and {before} in the evaluation before it"
    if math.isnan(error):
        return None
    earns = sum(abs(weight) for weight in history.facts.weights.values()) or 1.0
    apart = max(before.low - earned, earned - before.high)
    if apart < FAR * earns or apart < ERRORS * error:
        return Answer("ruled out", because)
    outcomes = "if they are of one kind, one of both is graded or sampled otherwise"
    return Answer("open", because, 0.2, Advice("compare tasks of training and evaluation"), outcomes)


def _greedy(history: History) -> Answer | None:
    """Return that sampled answers get better and greedy ones do not, where evaluations are greedy."""
    recipe, outcome = history.facts.recipe, history.outcome
    if recipe.eval.temperature or not recipe.sampling.temperature or not outcome.trend.rises:
        return None
    if outcome.gain is None or outcome.better:
        return None
    because = f"{outcome.trend.summary()}, of rollouts at sampling.temperature ="
    because += f" {recipe.sampling.temperature:g}; evaluation {outcome.gain}, at eval.temperature = 0"
    other = f"eval.temperature={recipe.sampling.temperature:g}"
    declared = recipe.env.get("eval")
    tasks = len(outcome.gain.differences)
    tasks = max(tasks, min(declared, TASKS)) if isinstance(declared, int) else tasks
    test = evaluate_again(history, tasks, other)
    outcomes = "if it shows a gain, sampled answers got better and the most probable one did not"
    return Answer("open", because, 0.3, test, outcomes, "the evaluation is greedy, and rollouts are sampled")


def _greedily() -> History:
    history = example_history({"reward/mean": rising()}, {"eval.temperature": 0.0})
    pair = (
        example_evaluation(name, [float(i % 5 > 0) for i in range(10)]) for name in ("base", "after_grpo")
    )
    return replace(history, evaluations=(*pair,))


def _evaluated(share: float) -> History:
    before = example_evaluation("base", [float(i < 100 * share) for i in range(100)])
    metrics = {"reward/mean": 0.6, "reward/std": 0.5, "tokens/sampled": 640.0}
    return example_history(metrics, {"eval.temperature": 1.0}, evaluations=(before, before))


CAUSE = Cause(
    title="training and evaluation have other tasks",
    needs=("recipe", "evaluations", "reward/mean"),
    stages=("policy", "rft"),
    judge=judge,
    found=(lambda: _evaluated(0.1), _greedily),
    excluded=(lambda: _evaluated(0.6),),
)
