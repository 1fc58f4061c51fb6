"""The training tasks are few, and are memorised: rollouts earn more than other tasks do.

Found: The last steps have few tasks, each many times; their reward is above the interval of the evaluation
after them, which proves no gain.
Open: A few prompts are those of many tasks.
The reward of a log rises, and none of its evaluations does, over eight records or more, or one falls.
Excluded: The tasks are many, or the evaluation earns as much, or more than before.
"""

from dataclasses import replace
from typing import Any

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log, example_sample, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.doctor.causes.outcome import SHOWN, evaluation_text
from truing.doctor.causes.trend import reward_trend
from truing.doctor.example_steps import example_evaluation
from truing.utils.format import with_count

OFTEN = 4
"""Groups of each task in the last steps."""


def judge(history: History) -> Answer | None:
    """Return the tasks of the last steps, and what they and the evaluation earn."""
    if history.run is None:
        return _of_log(history)
    if lacking := [need for need in ("samples", "evaluations") if not history.has(need)]:
        return Answer("cannot tell", f"the record lacks {', '.join(lacking)}")
    rollouts, gain = rollouts_of(history), history.outcome.gain
    if gain is None or not rollouts:
        return None
    tasks, groups = len({each.task_id for each in rollouts}), len({each.group_id for each in rollouts})
    prompts = min(tasks, len({each.prompt_hash for each in rollouts}))
    earned, after = sum(each.reward for each in rollouts) / len(rollouts), gain.after.estimate()
    because = f"the last {with_count(groups, 'group')} are of {with_count(tasks, 'task')}"
    because += f" with {with_count(prompts, 'prompt')}" if prompts < tasks else ""
    because += f", and earn {earned:.3f}; the evaluation earns {after}"
    if OFTEN * prompts <= tasks:
        outcomes = "if the evaluation has the same prompts, it does not show what others would earn"
        fix = Advice("train and evaluate on different prompts")
        return Answer("open", because, 0.8, fix, outcomes, "tasks repeat a few prompts")
    if groups < OFTEN * tasks or earned <= after.high or gain.is_gain:
        return Answer("ruled out", because)
    fix = Advice("train on more tasks, or on fewer steps of these")
    return Answer("found", because, min(1.0, (earned - after.mean) / earned), fix)


def _of_log(history: History) -> Answer | None:
    """Return where the evaluations of a log go while its reward rises, and the passes over the prompts."""
    outcome = history.outcome
    if not history.evaluated:
        return Answer("cannot tell", "the record lacks evaluations")
    if not history.trend.rises:
        return None
    scores = outcome.denied or history.evaluated
    texts = [evaluation_text(*each) for each in [*scores.items()][:SHOWN]]
    because = "; ".join([f"the reward goes {history.trend.first:.3g} → {history.trend.last:.3g}", *texts])
    if not outcome.denied:
        return Answer("ruled out", because)
    passes = [f"{name} {count:.3g}" for name, count in history.epochs.items() if count >= OFTEN]
    because = "; ".join([because, *passes])
    title = CAUSE.title if passes else "the evaluation does not rise with the reward"
    fix = Advice("train on more prompts, and compare what training and evaluation pay")
    outcomes = "if the evaluation rises, prompts were seen too often; if not, it grades or samples otherwise"
    return Answer("open", because, 0.9, fix, outcomes, title)


def _log(last: float, **fields: Any) -> History:
    scores = {"eval_reward": reward_trend([0.4 + (last - 0.4) * i / 11 + 0.001 * (i % 2) for i in range(12)])}
    return replace(example_log({"reward/mean": rising()}), evaluated=scores, **fields)


def _run(tasks: int) -> History:
    rows = [replace(example_sample(i, reward=1.0), task_id=f"task-{i // 4 % tasks}") for i in range(64)]
    rewards = [float(i < 20) for i in range(100)]
    pair = (example_evaluation("base", rewards), example_evaluation("after_grpo", rewards))
    return example_history({"reward/mean": rising()}, samples=rows, evaluations=pair)


def _same_prompts() -> History:
    """Sixteen tasks of three prompts, and an evaluation that earns as much."""
    history = _run(16)
    rows = [replace(each, prompt_hash=str(i // 4 % 3)) for i, each in enumerate(history.samples)]
    before, after = (example_evaluation(name, [1.0] * 100) for name in ("base", "after_grpo"))
    return replace(history, samples=rows, evaluations=(before, after))


CAUSE = Cause(
    title="the training tasks are memorised",
    stages=("policy", "rft"),
    judge=judge,
    found=(lambda: _run(2), _same_prompts, lambda: _log(0.3, epochs={"epoch": 40.0}), lambda: _log(0.4)),
    excluded=(lambda: _run(16), lambda: _log(0.6)),
)
