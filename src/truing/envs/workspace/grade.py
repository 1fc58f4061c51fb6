"""Rewards of a rollout of a problem, from its final state."""

from truing.envs.tools import is_error
from truing.envs.workspace.state import changes
from truing.types.rollout import Rollout, Task


def success(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the office equals exactly the result of the right calls: a side effect fails."""
    return float(rollout.outcome == task.answer["wanted"])


def progress(rollout: Rollout, task: Task) -> float:
    """Return the expected changes minus the others, as a share of the expected ones; at least 0."""
    expected = changes(task.answer["office"], task.answer["wanted"])
    actual = changes(task.answer["office"], rollout.outcome)
    net = (actual & expected).total() - (actual - expected).total()
    return max(0.0, net / expected.total())


def valid_calls(rollout: Rollout, task: Task) -> float:
    """Return the share of valid calls; 0.0 without any call."""
    answers = [message["content"] for message in rollout.messages if message["role"] == "tool"]
    if not answers:
        return 0.0
    return sum(not is_error(answer) for answer in answers) / len(answers)
