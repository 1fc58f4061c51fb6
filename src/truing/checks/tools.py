"""Checks of tools: prompt, environment and demonstration agree on them, and wrong calls get an answer."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from truing.checks.result import CheckResult, Finding, check_result
from truing.checks.tool_names import UnknownToolName, unknown_tool_names
from truing.checks.trial_episodes import TrialRun, demonstration_turns
from truing.envs.base import MultiTurnEnv
from truing.envs.program_env import ProgramEnv
from truing.envs.tools import is_error
from truing.rollouts.workers import CallResult, EnvCall, EnvWorkers, run_calls
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task
from truing.utils.format import did_you_mean

UNKNOWN_NAME = "truing_probe"
"""A name of no tool and no parameter."""

SHOWN_CHARS = 160
"""Characters of an answer that a finding shows."""

NO_TOOLS = "tools: no task has any"
OWN_TOOLS = "tools: programs send their own"
NO_EPISODES = "episodes: the environment has single turns only"


def names_agree(trial: TrialRun) -> CheckResult:
    """Check that prompt, environment and demonstration have the same tools, and prose names no others."""
    if isinstance(trial.context.env, ProgramEnv):
        return check_result(0, (), missing=OWN_TOOLS)
    tasks = [
        task for task in trial.tasks if task.tools or any(turn.calls for turn in demonstration_turns(task))
    ]
    if not tasks:
        return check_result(0, (), missing=NO_TOOLS)
    env, missing, unreadable = trial.context.env, "", 0
    findings, introduced, first_task = [], _introduced_later(trial), dict[UnknownToolName, str]()
    for task in tasks:
        prompt = {spec.name for spec in task.tools}
        called = {call.name for turn in demonstration_turns(task) for call in turn.calls}
        findings += _missing_tools(
            task,
            "the demonstration calls",
            called - prompt - introduced[task.task_id],
            "the prompt",
            prompt,
        )
        registered = _registered_tools(trial.workers, task) if isinstance(env, MultiTurnEnv) else None
        env_tools = registered or set[str]()
        for unknown in unknown_tool_names(task, prompt | env_tools | introduced[task.task_id]):
            first_task.setdefault(unknown, task.task_id)
        if registered is not None:
            findings += _missing_tools(
                task, "the prompt shows", prompt - env_tools, "the environment", env_tools
            )
            findings += _missing_tools(task, "the environment has", env_tools - prompt, "the prompt", prompt)
        else:
            unreadable += 1
    findings += (_unknown_name_finding(task_id, unknown) for unknown, task_id in first_task.items())
    if unreadable:
        missing = (
            f"registries: {unreadable} of {len(tasks)} tasks open no ToolEpisode,"
            " so their tools are not readable"
        )
    return check_result(len(tasks), findings, missing=missing)


def bad_calls_are_answered(trial: TrialRun) -> CheckResult:
    """Check, once per family, that an invalid call gets a message as answer."""
    env = trial.context.env
    first = {task.family: task for task in reversed(trial.tasks) if task.tools}
    if not first or not isinstance(env, MultiTurnEnv):
        return check_result(0, (), missing=NO_EPISODES if first else NO_TOOLS)
    findings, count = [], 0
    for task in first.values():
        for name, turn in _bad_calls(task).items():
            count += 1
            answer = _first_reply(trial.workers, task, turn)
            ends_at_once = (
                not answer.error and len(demonstration_turns(task)) == 1
            )  # a single-turn episode grades the call
            if not answer.value and not ends_at_once:
                findings.append(
                    Finding(
                        task.task_id,
                        f"{name} is not answered",
                        answer.error.strip().splitlines()[-1] if answer.error else "no message",
                        "a message that states the mistake",
                        "raise ToolError in the tool, or answer as ToolEpisode does",
                    )
                )
    return check_result(count, findings)


def failing_demonstrations(trial: TrialRun) -> Iterator[Finding]:
    """Yield a finding if every call of most demonstrations is answered with an error, one for all of them.

    Some may show what to do after an error.
    """
    replies = {
        each.task.task_id: [m["content"] for m in each.rollout.messages if m["role"] == "tool"]
        for each in trial.demonstrated
        if each.rollouts
    }
    calling = {name: answers for name, answers in replies.items() if answers}
    failing = {name: answers for name, answers in calling.items() if all(map(is_error, answers))}
    if 2 * len(failing) > len(calling):
        name, answers = next(iter(failing.items()))
        yield Finding(
            name,
            f"every call of the demonstration is answered with an error, in {len(failing)} of {len(calling)}"
            " demonstrations with calls; this is the first",
            f"{answers[0]!r:.{SHOWN_CHARS}}",
            "the result of a tool",
            "fix the call, the tool's parameters or the tool: a policy that calls as shown learns nothing",
        )


def _introduced_later(trial: TrialRun) -> defaultdict[str, set[str]]:
    """Return the tools that a later user message introduces, by task: they are in no prompt."""
    introduced: defaultdict[str, set[str]] = defaultdict(set)
    for trial_episode in trial.demonstrated:
        user_texts = [
            m["content"] for turn in trial_episode.rollouts[:1] for m in turn.messages if m["role"] == "user"
        ]
        called = {call.name for turn in demonstration_turns(trial_episode.task) for call in turn.calls}
        introduced[trial_episode.task.task_id] = {
            name for name in called if any(name in text for text in user_texts)
        }
    return introduced


def _bad_calls(task: Task) -> dict[str, AssistantMessage]:
    """Return invalid turns, by their mistake."""
    return {
        "a call of an unknown tool": AssistantMessage(calls=(ToolCall(UNKNOWN_NAME, {}),)),
        "a call with an unknown argument": AssistantMessage(
            calls=(ToolCall(task.tools[0].name, {UNKNOWN_NAME: 0}),)
        ),
        "a malformed call": AssistantMessage(parse_errors=("Call 1 is malformed: it is a probe.",)),
    }


def _first_reply(workers: EnvWorkers, task: Task, turn: AssistantMessage) -> CallResult[Any]:
    """Return a new episode's reply to a turn."""
    episode = workers.new_episode()
    (opened,) = run_calls(workers, [EnvCall("open", episode, task)])
    (reply,) = [opened] if opened.error else run_calls(workers, [EnvCall("reply", episode, turn)])
    workers.close_episodes([episode])
    return reply


def _registered_tools(workers: EnvWorkers, task: Task) -> set[str] | None:
    """Return the tools of a new episode; None if it shows none or cannot be opened (``rollouts_end``)."""
    episode = workers.new_episode()
    (opened,) = run_calls(workers, [EnvCall("open", episode, task)])
    workers.close_episodes([episode])
    return None if opened.value is None else set(opened.value)


def _unknown_name_finding(task_id: str, unknown: UnknownToolName) -> Finding:
    """Return the finding for an unknown tool name, at the first task that has it."""
    return Finding(
        task_id,
        f"{unknown.place} names a tool that does not exist",
        repr(unknown.name),
        unknown.tool,
        f"did you mean {unknown.tool!r}? {unknown.name!r} does not exist",
    )


def _missing_tools(task: Task, side: str, names: set[str], place: str, known: set[str]) -> Iterator[Finding]:
    """Yield a finding for each tool that one side names and the other lacks."""
    for name in sorted(names):
        remedy = did_you_mean(name, known) or f"give {place} the tool, or remove it"
        expected = ", ".join(sorted(known)) or "no tool"
        yield Finding(task.task_id, f"{side} a tool that {place} lacks", repr(name), expected, remedy)
