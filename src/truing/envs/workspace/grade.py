"""What an attempt at a problem is worth: the state that it leaves, not what it says."""

from truing.envs.tools import is_error
from truing.envs.workspace.state import changes
from truing.types.rollout import Rollout, Task


def success(rollout: Rollout, task: Task) -> float:
    """1.0 where the office is left exactly as the right calls leave it: a side effect fails."""
    return float(rollout.outcome == task.answer["wanted"])


def progress(rollout: Rollout, task: Task) -> float:
    """Wanted changes that were made, less those that nobody wanted, as a share of the wanted; at least 0."""
    wanted = changes(task.answer["office"], task.answer["wanted"])
    made = changes(task.answer["office"], rollout.outcome)
    net = (made & wanted).total() - (made - wanted).total()
    return max(0.0, net / wanted.total())


def valid_calls(rollout: Rollout, task: Task) -> float:
    """Share of calls that were carried out; 0.0 where none was tried, which is no way to work."""
    answers = [message["content"] for message in rollout.messages if message["role"] == "tool"]
    if not answers:
        return 0.0
    return sum(not is_error(answer) for answer in answers) / len(answers)
