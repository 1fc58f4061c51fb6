"""Checks of tasks, demonstrations and chat template before the first step."""

from collections.abc import Iterator, Sequence

from truing.algos import ALGORITHMS
from truing.algos.grpo import missing_turn_rewards
from truing.chat import Chat
from truing.chat.dropped_content import check_reply_written
from truing.checks import CheckReport, check_tasks, evenly_spaced
from truing.checks.trial_episodes import demonstration_turns, run_trial
from truing.config import GrpoConfig, PolicyStage, Recipe
from truing.errors import DataError, ModelError
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import no_demonstration
from truing.types.rollout import DemonstratedText, Task

TASKS_PER_SPLIT = 4
"""Checked tasks per split: fewer episodes than one step has."""

REQUIRED_CHECKS = (
    "the stop is trained",
    "BOS is not doubled",
    "SFT and RL show one prompt",
    "every message is shown",
    "tools are shown in full",
    "tool answers are shown",
)
"""Checks that must pass before a run starts; findings of the others are logged."""


def check_turn_rewards(context: EpisodeContext, tasks: Sequence[Task], cfg: GrpoConfig) -> None:
    """Raise if GRPO needs rewards per turn (``advantage_per``) and the environment gives none."""
    if cfg.advantage_per == "episode":
        return
    with context.running_workers() as workers:
        episodes = run_trial(context, workers, tasks[:1]).episodes
    for episode in episodes:
        if episode.grades and not episode.grades[0].turn_rewards:
            raise missing_turn_rewards(f"task {episode.task.task_id}")


def needs_demonstrations(recipe: Recipe) -> bool:
    """Return whether a stage trains on the demonstrations of the environment."""
    by_policy_stage = any(isinstance(recipe.stage(name), PolicyStage) for name in recipe.stages)
    return (recipe.bootstrap.steps > 0 and by_policy_stage) or any(
        ALGORITHMS[name].source == "demonstrations" for name in recipe.stages
    )


def check_demonstrations(chat: Chat, tasks: Sequence[Task]) -> None:
    """Raise if a task has no demonstration, or the chat template drops content of a demonstrated turn.

    Each turn is rendered after its task's prompt; no episode is run.
    """
    for task in tasks:
        if task.demonstration is None:
            raise no_demonstration(task)
        for reply in demonstration_turns(task):
            try:
                rendered_by = chat.with_variables(task.template_kwargs)
                check_reply_written(rendered_by, task.messages, reply, task.tools)
            except DataError as error:
                raise error.of(task.where or f"task {task.task_id}") from error


def task_report(context: EpisodeContext, *splits: Sequence[Task], shaping: Sequence[str] = ()) -> CheckReport:
    """Check the environment and the chat template with some tasks.

    Whole texts are left out: they have no prompt, and no template renders them.

    Raises:
        ModelError: A check of ``REQUIRED_CHECKS`` has a finding.
    """
    rendered = (
        [task for task in split if not isinstance(task.demonstration, DemonstratedText)] for split in splits
    )
    tasks = [task for split in rendered for task in evenly_spaced(split, TASKS_PER_SPLIT)]
    report = check_tasks(context, tasks, shaping) if tasks else CheckReport()
    for name in REQUIRED_CHECKS:
        for finding in report[name].findings[:1] if name in report else ():
            raise ModelError(
                f"{finding.what} ({finding.where})",
                got=finding.got,
                expected=finding.expected,
                remedy=f"{finding.remedy}; `truing check` lists all findings",
            )
    return report


def task_findings(report: CheckReport) -> Iterator[str]:
    """Yield a sentence for each check with a finding."""
    for finding in (finding for result in report.values() for finding in result.findings[:1]):
        expected = f", expected {finding.expected}" if finding.expected else ""
        yield f"{finding.where}: {finding.what}; got {finding.got}{expected}; {finding.remedy}"
