"""All checks of a recipe, in the order of the report."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from truing.checks import conversation, environment, judged_rewards, programs, template, tools
from truing.checks.contradictions import contradictions
from truing.checks.result import CheckResult, Finding, check_result
from truing.checks.text_report import finding_lines, report_lines
from truing.checks.trial_episodes import TrialRun, run_trial
from truing.envs.base import checked_tasks
from truing.envs.program_env import ProgramEnv
from truing.errors import DataError
from truing.rollouts.episode_context import EpisodeContext
from truing.types.rollout import Task
from truing.utils.format import escape_control

TASKS_PER_SPLIT = 64
"""Tasks checked per split, evenly spaced, because data is often sorted."""

SPLITS = "tasks can be used, and are each in one split"

CHECKS: Mapping[str, Callable[[TrialRun], CheckResult]] = {
    "rollouts can be played and graded": environment.rollouts_end,
    "the demonstration scores full": judged_rewards.demonstration_scores_full,
    "saying nothing does not score full": environment.empty_scores_less,
    "shuffled answers do not score full": environment.shuffled_score_less,
    "grading twice agrees": environment.grading_agrees,
    "a task opens the same episode twice": environment.environments_agree,
    "prompts fit the context": environment.prompts_fit,
    "demonstrations fit": environment.demonstrations_fit,
    "tool names are one set": tools.names_agree,
    "bad calls are answered": tools.bad_calls_are_answered,
    "the prompt opens the assistant's turn": template.generation_prompt,
    "the template writes a stop": template.stop_is_written,
    "the stop is trained": template.stop_is_trained,
    "BOS is not doubled": template.bos_is_single,
    "SFT and RL show one prompt": template.prompts_agree,
    "demonstrations read as the template writes them": template.demonstrations_agree,
    "every message is shown": conversation.prompts_show_all,
    "later prompts show every message": conversation.later_prompts_show_all,
    "tools are shown in full": template.tools_are_shown,
    "tool answers are shown": conversation.answers_are_shown,
    "turns extend each other": conversation.turns_extend,
}
"""The checks by name."""

OF_PROGRAMS = {"programs call the policy": programs.programs_call}
"""Those of environments of programs."""


class CheckReport(dict[str, CheckResult]):
    """The result of each check by name; ``str`` gives the report as text."""

    demonstrated: Mapping[str, Sequence[float]] = {}
    """What each demonstration earned, by family of tasks."""

    @property
    def findings(self) -> list[Finding]:
        """All findings."""
        return [finding for result in self.values() for finding in result.findings]

    @property
    def finding_lines(self) -> list[str]:
        """The first findings of each check as text."""
        return [escape_control(line) for line in finding_lines(self)]

    def __str__(self) -> str:
        return "\n".join(map(escape_control, report_lines(self)))


def check(context: EpisodeContext, shaping: Sequence[str] = ()) -> CheckReport:
    """Check an environment and a chat template; nothing is sampled or trained.

    Args:
        context: of the episodes.
        shaping: parts of the reward that are not judged.

    Raises:
        JudgeUnavailable: A judge cannot be reached.
    """
    try:
        splits = checked_tasks(context.env)
    except DataError as error:
        unusable = check_result(1, [Finding.from_error("all tasks", error)])
        return CheckReport(
            {SPLITS: unusable} | {name: check_result(0, (), missing="tasks: see above") for name in CHECKS}
        )
    notes = [
        *context.env.notes,
        *(note for each in splits.values() for note in contradictions(context.env, each)),
    ]
    first = check_result(sum(map(len, splits.values())), (), notes=notes)
    tasks = [task for each in splits.values() for task in evenly_spaced(each, TASKS_PER_SPLIT)]
    return CheckReport({SPLITS: first} | check_tasks(context, tasks, shaping))


def check_tasks(context: EpisodeContext, tasks: Sequence[Task], shaping: Sequence[str] = ()) -> CheckReport:
    """Run all checks for the given tasks only."""
    with context.running_workers() as workers:
        trial = run_trial(context, workers, tasks, shaping)
        checks = {**CHECKS, **(OF_PROGRAMS if isinstance(context.env, ProgramEnv) else {})}
        report = CheckReport({name: _run_check(function, trial) for name, function in checks.items()})
    report.demonstrated = _demonstrated(trial)
    return report


def _demonstrated(trial: TrialRun) -> dict[str, list[float]]:
    rewards = defaultdict[str, list[float]](list)
    for each in trial.demonstrated:
        if each.grades:
            rewards[each.task.family].append(each.reward)
    return dict(rewards)


def evenly_spaced(tasks: Sequence[Task], limit: int) -> Iterator[Task]:
    """Return at most ``limit`` tasks, evenly spaced."""
    count = min(limit, len(tasks))
    return (tasks[i * len(tasks) // count] for i in range(count))


def _run_check(function: Callable[[TrialRun], CheckResult], trial: TrialRun) -> CheckResult:
    """Return the result of a check; a template that rejects the check's messages is a finding too."""
    try:
        return function(trial)
    except DataError as error:
        return check_result(1, [Finding.from_error(template.TEMPLATE, error)])


def report_json(report: CheckReport) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "findings": [
            {"check": name} | asdict(finding)
            for name, result in report.items()
            for finding in result.findings
        ],
        "not_checked": [
            {"check": name, "missing": m} for name, result in report.items() for m in result.missing
        ],
        "notes": [{"check": name, "note": note} for name, result in report.items() for note in result.notes],
        "checked": {name: result.count for name, result in report.items()},
    }
