"""What is proven of a run's tasks and its chat template before the first update."""

from collections.abc import Iterator, Sequence

from truing.algos.grpo import missing_turn_rewards
from truing.chat import Chat
from truing.chat.dropped_content import check_reply_written
from truing.checks import check_tasks, evenly_spaced
from truing.checks.trial_episodes import demonstration_turns, run_trial
from truing.config import GrpoConfig
from truing.errors import DataError, ModelError
from truing.rollouts.collect import EpisodeContext
from truing.types.rollout import Task

TASKS_PER_SPLIT = 4
"""Tasks of each split that are looked at: fewer plays than one step has."""

REQUIRED_CHECKS = (
    "the stop is trained",
    "BOS is not doubled",
    "SFT and RL show one prompt",
    "every message is shown",
    "tools are shown in full",
    "tool answers are shown",
)
"""Checks without which no run begins; what the others find is told."""


def check_turn_rewards(context: EpisodeContext, tasks: Sequence[Task], cfg: GrpoConfig) -> None:
    """Raise where GRPO asks for an advantage per turn, and nothing judges turns."""
    if cfg.advantage_per == "episode":
        return
    for play in run_trial(context, tasks[:1]).episodes:
        if play.grades and not play.grades[0].turn_rewards:
            raise missing_turn_rewards(f"task {play.task.task_id}")


def check_demonstrations(chat: Chat, tasks: Sequence[Task]) -> None:
    """Raise where the chat template does not write all that a turn of a demonstration says.

    Each turn is tried behind its task's prompt, so nothing has to be played.
    """
    for task in tasks:
        for said in demonstration_turns(task):
            try:
                check_reply_written(chat, task.messages, said, task.tools)
            except DataError as error:
                raise DataError(
                    f"{error.what}: task {task.task_id}",
                    got=error.got,
                    expected=error.expected,
                    remedy=error.remedy,
                ) from error


def task_findings(context: EpisodeContext, *splits: Sequence[Task]) -> Iterator[str]:
    """A sentence for each check of the environment and the chat template that finds something.

    Raises:
        ModelError: A doubled BOS; messages, tools or their answers that no prompt shows; a renderer at fault.
    """
    tasks = [task for split in splits for task in evenly_spaced(split, TASKS_PER_SPLIT)]
    for name, result in check_tasks(context, tasks).items():
        for finding in result.findings[:1]:
            if name in REQUIRED_CHECKS:
                raise ModelError(
                    f"{finding.what} ({finding.where})",
                    got=finding.got,
                    expected=finding.expected,
                    remedy=f"{finding.remedy}; `truing check` lists all",
                )
            expected = f", expected {finding.expected}" if finding.expected else ""
            yield f"{finding.where}: {finding.what}; got {finding.got}{expected}; {finding.remedy}"
