"""The training tasks are few, and are memorised: rollouts earn more than other tasks do.

Found: The last steps have few tasks, each many times; their reward is above the interval of the evaluation
after them, which proves no gain.
Excluded: The tasks are many, or the evaluation earns as much, or more than before.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_sample, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.doctor.example_steps import example_evaluation
from truing.utils.format import with_count

OFTEN = 4
"""Groups of each task in the last steps."""


def judge(history: History) -> Answer | None:
    """Return the tasks of the last steps, and what they and the evaluation earn."""
    rollouts, gain = rollouts_of(history), history.outcome.gain
    if gain is None or not rollouts:
        return None
    tasks, groups = len({each.task_id for each in rollouts}), len({each.group_id for each in rollouts})
    earned, after = sum(each.reward for each in rollouts) / len(rollouts), gain.after.estimate()
    because = f"the last {with_count(groups, 'group')} are of {with_count(tasks, 'task')}"
    because += f", and earn {earned:.3f}; the evaluation earns {after}"
    if groups < OFTEN * tasks or earned <= after.high or gain.is_gain:
        return Answer("ruled out", because)
    fix = Advice("train on more tasks, or on fewer steps of these")
    return Answer("found", because, min(1.0, (earned - after.mean) / earned), fix)


def _run(tasks: int) -> History:
    rows = [replace(example_sample(i, reward=1.0), task_id=f"task-{i // 4 % tasks}") for i in range(64)]
    rewards = [float(i < 20) for i in range(100)]
    pair = (example_evaluation("base", rewards), example_evaluation("after_grpo", rewards))
    return example_history({"reward/mean": rising()}, samples=rows, evaluations=pair)


CAUSE = Cause(
    title="the training tasks are memorised",
    needs=("samples", "evaluations"),
    judge=judge,
    found=(lambda: _run(2),),
    excluded=(lambda: _run(16),),
)
