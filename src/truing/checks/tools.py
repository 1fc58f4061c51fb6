"""Checks of tools: that all who name them mean the same, and that a wrong call is told to the model."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from truing.checks.result import Checked, Finding, checked
from truing.checks.tool_names import Stranger, strangers
from truing.checks.trial_episodes import Trial, turns
from truing.envs.base import Agentic, Episode
from truing.envs.isolation import open_isolated
from truing.envs.tools import ToolEpisode
from truing.rollouts.env_workers import in_threads
from truing.types.message import Said, ToolCall
from truing.types.rollout import Task
from truing.utils.deep_copy import copied
from truing.utils.did_you_mean import nearest

STRANGER = "truing_probe"
"""A name that no tool and no parameter has."""

NO_TOOLS = "tools: no task has any"
NO_WORLDS = "worlds: the environment opens none"


def names_agree(trial: Trial) -> Checked:
    """The tools of a prompt, of its world and of its demonstration are one set, and prose names no others."""
    tasks = [task for task in trial.tasks if task.tools or any(said.calls for said in turns(task))]
    if not tasks:
        return checked(0, (), missing=NO_TOOLS)
    env, missing, unseen = trial.scene.env, "", 0
    findings, later, told = [], _shown_later(trial), dict[Stranger, str]()
    for task in tasks:
        prompt = {spec.name for spec in task.tools}
        called = {call.name for said in turns(task) for call in said.calls}
        findings += _strangers(
            task, "the demonstration calls", called - prompt - later[task.task_id], "the prompt", prompt
        )
        world = _open(env, task, trial.scene.limits.timeout) if isinstance(env, Agentic) else None
        held = set(world.tools) if isinstance(world, ToolEpisode) else set[str]()
        for stranger in strangers(task, prompt | held | later[task.task_id]):
            told.setdefault(stranger, task.task_id)
        if isinstance(world, ToolEpisode):
            findings += _strangers(task, "the prompt shows", prompt - held, "the world", held)
            findings += _strangers(task, "the world has", held - prompt, "the prompt", prompt)
        else:
            unseen += 1
    findings += (_named_otherwise(where, stranger) for stranger, where in told.items())
    if unseen:
        missing = f"registries: {unseen} of {len(tasks)} tasks open no ToolEpisode, whose tools can be read"
    return checked(len(tasks), findings, missing=missing)


def bad_calls_are_answered(trial: Trial) -> Checked:
    """A call that cannot be carried out comes back as a message, once for each family."""
    env = trial.scene.env
    first = {task.family: task for task in reversed(trial.tasks) if task.tools}
    if not first or not isinstance(env, Agentic):
        return checked(0, (), missing=NO_WORLDS if first else NO_TOOLS)
    findings, count = [], 0
    for task in first.values():
        for name, said in _bad_calls(task).items():
            count += 1
            (answer,) = in_threads([partial(_tell, env, task, said)], trial.scene.limits.timeout)
            ends = not answer.error and len(turns(task)) == 1  # such a world judges what is said at once
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
    return checked(count, findings)


def _shown_later(trial: Trial) -> defaultdict[str, set[str]]:
    """Tools that the world brings along with a request, by task: they are in no prompt."""
    later: defaultdict[str, set[str]] = defaultdict(set)
    for play in trial.gold:
        said = [m["content"] for each in play.rollouts[:1] for m in each.messages if m["role"] == "user"]
        called = {call.name for each in turns(play.task) for call in each.calls}
        later[play.task.task_id] = {name for name in called if any(name in text for text in said)}
    return later


def _bad_calls(task: Task) -> dict[str, Said]:
    """Turns that no world can carry out, by what is wrong with them."""
    return {
        "a call of an unknown tool": Said(calls=(ToolCall(STRANGER, {}),)),
        "a call with an unknown argument": Said(calls=(ToolCall(task.tools[0].name, {STRANGER: 0}),)),
        "a malformed call": Said(problems=("Call 1 is malformed: it is a probe.",)),
    }


def _tell(env: Agentic, task: Task, said: Said) -> object:
    """What a fresh world answers to a turn."""
    return open_isolated(env, task).reply(said)


def _open(env: Agentic, task: Task, timeout: float) -> Episode | None:
    """A fresh world; None where it cannot be opened, which playing the task reports."""
    (opened,) = in_threads([partial(env.open, copied(task, f"task {task.task_id}"))], timeout)
    return opened.value


def _named_otherwise(where: str, stranger: Stranger) -> Finding:
    """A name in prose that looks like a tool's; told once, at the first task that has it."""
    return Finding(
        where,
        f"{stranger.place} names a tool that does not exist",
        repr(stranger.name),
        stranger.tool,
        f"did you mean {stranger.tool!r}? A model that does as it is told calls {stranger.name!r} in vain",
    )


def _strangers(task: Task, who: str, names: set[str], where: str, known: set[str]) -> Iterator[Finding]:
    """Tools that one side names and the other lacks."""
    for name in sorted(names):
        remedy = nearest(name, known) or f"give {where} the tool, or take it out"
        expected = ", ".join(sorted(known)) or "no tool"
        yield Finding(task.task_id, f"{who} a tool that {where} lacks", repr(name), expected, remedy)
