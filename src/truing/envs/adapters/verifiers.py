"""A taskset of the library verifiers: its tasks, its tools, and its own rewards, run by its own code."""

import inspect
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from truing.config import FrozenModel, PositiveFloat, PositiveInt
from truing.envs.adapters.mcp_session import McpSession, loop_in_new_thread, run_coroutine
from truing.envs.base import Episode, Split, hash_fraction
from truing.envs.optional_packages import import_optional
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import DataError, RecipeError
from truing.rewards import Rewards
from truing.types.message import Message
from truing.types.rollout import Rollout, Task
from truing.utils.deep_copy import deep_copy


class VerifiersConfig(FrozenModel):
    """The taskset, and the split of its tasks."""

    taskset: str
    """Module or installed package of the taskset, as verifiers names it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keys of the taskset's own config."""
    limit: PositiveInt = 1024
    """Maximum number of its tasks: the first ones."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of tasks for evaluation: those whose SHA-256 of (seed, prompt), in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other tasks for evaluation."""
    timeout: PositiveFloat = 60.0
    """Time limit of grading a rollout and of each tool call, in seconds."""


class Verifiers:
    """Tasks whose rewards need only the transcript; tasks that need a container are rejected.

    The taskset's own tools run in this process: a task's tools are created for each episode, the taskset's
    tools are shared.
    """

    Config = VerifiersConfig
    notes: Sequence[str] = ()

    def __init__(self, config: VerifiersConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"reward": (self._reward, 1.0)}
        self._vf = import_optional("verifiers.v1", "verifiers")
        self._state_of = import_optional("verifiers.v1.state", "verifiers").state_cls
        self._judging = loop_in_new_thread()
        taskset = _load(config)
        self._shared = self._serve(taskset.toolsets(taskset.config))
        self._originals: dict[str, Any] = {}
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        for original in itertools.islice(taskset, config.limit):
            task = self._task(original)
            for_eval = hash_fraction("split", config.seed, original.data.prompt_text) < config.eval_share
            self._tasks["eval" if for_eval else "train"].append(task)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in the taskset's order."""
        return self._tasks[split]

    def open(self, task: Task) -> Episode:
        """Return an episode with the tools of the task and of the taskset."""
        original = self._original(task)
        return ToolEpisode([*self._own(original), *self._shared])

    def _task(self, original: Any) -> Task:
        """Return one of the taskset's tasks as a task."""
        _check(self._vf, original)
        data = original.data
        task_id = f"{self.config.taskset}/{data.idx}"
        self._originals[task_id] = original
        return Task(
            task_id=task_id,
            family=f"verifiers/{self.config.taskset}",
            messages=tuple(prompt_messages(original)),
            answer=original.hash,
            tools=tuple(tool.spec for tool in (*self._own(original), *self._shared)),
        )

    def _original(self, task: Task) -> Any:
        """Return a copy of the taskset's own task: its tools and rewards may change its data."""
        return deep_copy(self._originals[task.task_id], f"task {task.task_id}")

    def _own(self, original: Any) -> list[Tool]:
        """Return new tools for one task."""
        return self._serve(original.toolsets(original.config), original.data)

    def _serve(self, toolsets: Sequence[Any], data: Any = None) -> list[Tool]:
        """Return the tools of toolsets, served in this process."""
        return [tool for toolset in toolsets for tool in self._served(toolset, data)]

    def _served(self, toolset: Any, data: Any) -> list[Tool]:
        """Return the tools of one toolset."""
        seconds, name = self.config.timeout, type(toolset).__name__
        if self._state_of(type(toolset)) is not self._vf.State:
            raise DataError(
                f"the toolset {name} shares a State with its rewards, which takes verifiers' own runner",
                remedy='keep the state in the toolset itself, or set env.name = "verifiers_program"',
            )
        loop = loop_in_new_thread()  # a tool that blocks its loop delays no other tool
        run_coroutine(toolset.setup(), seconds, loop)
        if data is not None:
            run_coroutine(toolset.setup_task(data), seconds, loop)
        server = import_optional("mcp.server.mcpserver", "verifiers").MCPServer(toolset.server_name or name)
        toolset.register(server)
        return McpSession(server, name, seconds, "verifiers", loop).tools()

    def _reward(self, rollout: Rollout, task: Task) -> float:
        """Return the weighted sum of the task's own rewards."""
        original = self._original(task)
        trace = self._trace(original, [*task.messages, *rollout.messages], len(task.messages))
        run_coroutine(original.score(trace), self.config.timeout, self._judging)
        unscored = [name for name, reward in trace.rewards.items() if reward is None]
        if unscored or not trace.rewards:
            raise DataError(
                f"verifiers did not score task {task.task_id}", got=unscored, expected="a number per reward"
            )
        return trace.reward

    def _trace(self, original: Any, messages: Sequence[Message], prompt_length: int) -> Any:
        """Return a transcript in verifiers' form: ``prompt_length`` messages, then the rollout's."""
        vf = self._vf
        trace = vf.Trace(
            task=vf.TraceTask(
                type=type(original).__name__, data=original.data, key=original.key, hash=original.hash
            ),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            state=self._state_of(type(original))(),
        )
        for index, message in enumerate(messages):
            played = index >= prompt_length and message["role"] == "assistant"
            parent = index - 1 if index else None
            trace.nodes.append(vf.MessageNode(parent=parent, message=_written(message), sampled=played))
        return trace


def _load(config: VerifiersConfig) -> Any:
    """Return the taskset, by the library's own loader."""
    loaders = import_optional("verifiers.v1.utils.loaders", "verifiers")
    try:
        settings = loaders.taskset_config_type(config.taskset)(id=config.taskset, **config.options)
        return loaders.load_taskset(settings)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # raised by loader and config
        raise RecipeError(
            f"verifiers cannot load the taskset {config.taskset!r} with these env.options",
            got=f"{config.options}: {error}",
            expected="a module that exports one Taskset by __all__, and keys of its config",
        ) from error


def _check(vf: Any, task: Any) -> None:
    """Raise if a task cannot be prompted or graded by its transcript alone."""
    problems = []
    if task.data.prompt is None:
        problems.append("has no prompt")
    if task.NEEDS_CONTAINER:
        problems.append("needs a container")
    problems += [
        f"has a hook {hook!r}"
        for hook in ("setup", "finalize")
        if getattr(type(task), hook) is not getattr(vf.Task, hook)
    ]
    judges = [judge.score for judge in task.plugged_judges()]
    for function in [*task.hooks("reward"), *task.hooks("metric"), *judges]:
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is runtime.empty:
            problems.append(f"is judged by {function.__name__!r}, which looks into a runtime")
    if problems:
        raise DataError(
            f"verifiers task {task.data.idx} cannot be run by Truing: it {', and '.join(problems)}",
            expected="a prompt, and rewards that read the transcript",
            remedy='env.name = "verifiers_program" runs it by verifiers\' own runner',
        )


def prompt_messages(task: Any) -> list[Message]:
    """Return the messages of the prompt."""
    system, prompt = task.data.system_prompt, task.data.prompt
    before = [{"role": "system", "content": system}] if system is not None else []
    if isinstance(prompt, str):
        return [*before, {"role": "user", "content": prompt}]
    return [*before, *(message.model_dump(exclude_none=True) for message in prompt)]


def _written(message: Message) -> Mapping[str, Any]:
    """Return a message in verifiers' form: flat calls with arguments as text."""
    plain = {key: message[key] for key in ("role", "content", "name", "tool_call_id") if key in message}
    if "tool_calls" not in message:
        return plain
    calls = [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
        }
        for call in message["tool_calls"]
    ]
    return plain | {"tool_calls": calls}
