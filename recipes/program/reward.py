"""What the agent's answer and its workspace are worth."""

from pathlib import Path

from truing import Rollout, Task


def right(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the answer is the price."""
    return float(rollout.outcome["output"]["answer"].strip() == str(task.answer))


def digits(rollout: Rollout, task: Task) -> float:
    """Return the share of the answer's characters that are digits: a model that is wrong learns the form."""
    text = rollout.outcome["output"]["answer"]
    return sum(each.isdecimal() for each in text) / max(1, len(text))


def looked_up(rollout: Rollout, task: Task, workspace: Path) -> float:
    """Return 1.0 if the agent looked up the fruit of its task, as the file that it left says."""
    log = workspace / "looked_up.txt"
    return float(log.is_file() and task.info["fruit"] in log.read_text(encoding="utf-8").split())
