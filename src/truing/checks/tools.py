"""Checks of tools: that all who name them mean the same, and that a wrong call is told to the model."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from truing.checks.result import CheckResult, Finding, check_result
from truing.checks.tool_names import UnknownToolName, unknown_tool_names
from truing.checks.trial_episodes import TrialRun, demonstration_turns
from truing.envs.base import Episode, MultiTurnEnv
from truing.envs.isolation import open_isolated
from truing.envs.tools import ToolEpisode
from truing.rollouts.env_workers import run_in_workers
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy
from truing.utils.format import did_you_mean

UNKNOWN_NAME = "truing_probe"
"""A name that no tool and no parameter has."""

NO_TOOLS = "tools: no task has any"
NO_EPISODES = "worlds: the environment opens none"


def names_agree(trial: TrialRun) -> CheckResult:
    """The tools of a prompt, of its world and of its demonstration are one set, and prose names no others."""
    tasks = [
        task for task in trial.tasks if task.tools or any(said.calls for said in demonstration_turns(task))
    ]
    if not tasks:
        return check_result(0, (), missing=NO_TOOLS)
    env, missing, unseen = trial.context.env, "", 0
    findings, later, told = [], _shown_later(trial), dict[UnknownToolName, str]()
    for task in tasks:
        prompt = {spec.name for spec in task.tools}
        called = {call.name for said in demonstration_turns(task) for call in said.calls}
        findings += _missing_tools(
            task, "the demonstration calls", called - prompt - later[task.task_id], "the prompt", prompt
        )
        world = _open(env, task, trial.context.limits.timeout) if isinstance(env, MultiTurnEnv) else None
        held = set(world.tools) if isinstance(world, ToolEpisode) else set[str]()
        for stranger in unknown_tool_names(task, prompt | held | later[task.task_id]):
            told.setdefault(stranger, task.task_id)
        if isinstance(world, ToolEpisode):
            findings += _missing_tools(task, "the prompt shows", prompt - held, "the world", held)
            findings += _missing_tools(task, "the world has", held - prompt, "the prompt", prompt)
        else:
            unseen += 1
    findings += (_unknown_name_finding(where, stranger) for stranger, where in told.items())
    if unseen:
        missing = f"registries: {unseen} of {len(tasks)} tasks open no ToolEpisode, whose tools can be read"
    return check_result(len(tasks), findings, missing=missing)


def bad_calls_are_answered(trial: TrialRun) -> CheckResult:
    """A call that cannot be carried out comes back as a message, once for each family."""
    env = trial.context.env
    first = {task.family: task for task in reversed(trial.tasks) if task.tools}
    if not first or not isinstance(env, MultiTurnEnv):
        return check_result(0, (), missing=NO_EPISODES if first else NO_TOOLS)
    findings, count = [], 0
    for task in first.values():
        for name, said in _bad_calls(task).items():
            count += 1
            (answer,) = run_in_workers([partial(_reply_to, env, task, said)], trial.context.limits.timeout)
            ends = (
                not answer.error and len(demonstration_turns(task)) == 1
            )  # such a world judges what is said at once
            if not answer.value and not ends:
                findings.append(
                    Finding(
                        task.task_id,
                        f"{name} is not answered",
                        answer.error.strip().splitlines()[-1] if answer.error else "no message",
                        "a message that tells the model what was wrong",
                        "raise ToolError in the tool, or answer as ToolEpisode does",
                    )
                )
    return check_result(count, findings)


def _shown_later(trial: TrialRun) -> defaultdict[str, set[str]]:
    """Tools that the world brings along with a request, by task: they are in no prompt."""
    later: defaultdict[str, set[str]] = defaultdict(set)
    for play in trial.demonstrated:
        said = [m["content"] for each in play.rollouts[:1] for m in each.messages if m["role"] == "user"]
        called = {call.name for each in demonstration_turns(play.task) for call in each.calls}
        later[play.task.task_id] = {name for name in called if any(name in text for text in said)}
    return later


def _bad_calls(task: Task) -> dict[str, AssistantMessage]:
    """Turns that no world can carry out, by what is wrong with them."""
    return {
        "a call of an unknown tool": AssistantMessage(calls=(ToolCall(UNKNOWN_NAME, {}),)),
        "a call with an unknown argument": AssistantMessage(
            calls=(ToolCall(task.tools[0].name, {UNKNOWN_NAME: 0}),)
        ),
        "a malformed call": AssistantMessage(parse_errors=("Call 1 is malformed: it is a probe.",)),
    }


def _reply_to(env: MultiTurnEnv, task: Task, message: AssistantMessage) -> object:
    """What a fresh world answers to a turn."""
    return open_isolated(env, task).reply(message)


def _open(env: MultiTurnEnv, task: Task, timeout: float) -> Episode | None:
    """A fresh world; None where it cannot be opened, which playing the task reports."""
    (opened,) = run_in_workers([partial(env.open, deep_copy(task, f"task {task.task_id}"))], timeout)
    return opened.value


def _unknown_name_finding(where: str, stranger: UnknownToolName) -> Finding:
    """A name in prose that looks like a tool's; told once, at the first task that has it."""
    return Finding(
        where,
        f"{stranger.place} names a tool that does not exist",
        repr(stranger.name),
        stranger.tool,
        f"did you mean {stranger.tool!r}? A model that does as it is told calls {stranger.name!r} in vain",
    )


def _missing_tools(task: Task, who: str, names: set[str], where: str, known: set[str]) -> Iterator[Finding]:
    """Tools that one side names and the other lacks."""
    for name in sorted(names):
        remedy = did_you_mean(name, known) or f"give {where} the tool, or take it out"
        expected = ", ".join(sorted(known)) or "no tool"
        yield Finding(task.task_id, f"{who} a tool that {where} lacks", repr(name), expected, remedy)
