"""A taskset of the library verifiers, run by verifiers' own runner and harness: a program of each rollout."""

import asyncio
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Annotated, Any

from pydantic import Field

from truing.config import PositiveInt
from truing.envs.adapters.verifiers import prompt_messages
from truing.envs.base import Split, hash_fraction
from truing.envs.optional_packages import import_optional
from truing.envs.program.config import CallOptions
from truing.envs.program.env import Programs
from truing.envs.program.function_program import FunctionProgram
from truing.envs.program.workspace import Workspaces
from truing.errors import DataError, ProgramError, RecipeError
from truing.rewards import Rewards
from truing.types.rollout import Rollout, Task
from truing.utils.deep_copy import deep_copy

MODEL = "policy"


class VerifiersProgramConfig(CallOptions):
    """The taskset, the split of its tasks, and the harness that works on them."""

    taskset: str
    """Module or installed package of the taskset, as verifiers names it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keys of the taskset's own config."""
    harness: dict[str, Any] | None = None
    """The harness, such as { id = "null" }, with keys of its own; if not set, the taskset's, else `bash`."""
    runtime: dict[str, Any] = Field(default_factory=lambda: {"type": "subprocess"})
    """Where the harness runs, as verifiers names it: { type = "docker" } with keys of its own."""
    limit: PositiveInt = 1024
    """Maximum number of its tasks: the first ones."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of tasks for evaluation: those whose SHA-256 of (seed, prompt), in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other tasks for evaluation."""


class VerifiersProgram(Programs):
    """Tasks whose rollouts verifiers runs: its harness calls the policy, its rewards judge the trace."""

    Config = VerifiersProgramConfig
    notes: Sequence[str] = ()

    def __init__(self, config: VerifiersProgramConfig) -> None:
        self.rewards: Rewards = {"reward": (_reward, 1.0)}
        runner = _Runner(config)
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        for task_id, original in runner.originals.items():
            text = original.data.prompt_text
            split: Split = (
                "eval" if hash_fraction("split", config.seed, text) < config.eval_share else "train"
            )
            family = f"verifiers/{config.taskset}"
            self._tasks[split].append(Task(task_id, family, tuple(prompt_messages(original))))
        super().__init__(FunctionProgram(runner.run, config.timeout), config, Workspaces(None))

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in the taskset's order."""
        return self._tasks[split]


class _Runner:
    """Verifiers' runner with one agent, whose model is the policy."""

    def __init__(self, config: VerifiersProgramConfig) -> None:
        self._vf = import_optional("verifiers.v1", "verifiers")
        self._agents = import_optional("verifiers.v1.configs.agent", "verifiers")
        self._env = _load(config)
        (self._spec,) = self._agents.agent_config_fields(self._env.config).values()
        default = import_optional("verifiers.v1.configs.env", "verifiers").default_agent_harness
        self._harness = default(config.taskset)
        self._shared: dict[str, Any] | None = None
        self._serving, self._starting = AsyncExitStack(), asyncio.Lock()
        taskset = itertools.islice(self._env.taskset, config.limit)
        self.originals = {f"{config.taskset}/{each.data.idx}": each for each in taskset}
        for original in self.originals.values():
            self._check(original)

    async def run(self, task: Task, base_url: str, key: str) -> dict[str, Any]:
        """Run a task's rollout, and return what verifiers computed of it."""
        original = deep_copy(self.originals[task.task_id], f"task {task.task_id}")
        shared = await self._shared_tools()
        with _variable(key) as name:
            client = self._vf.EvalClientConfig(base_url=base_url, api_key_var=name)
            trace = await self._agent(client).run(original, tools=shared)
        return _outcome(trace, task.task_id)

    def _agent(self, client: Any) -> Any:
        """Return an agent of one rollout."""
        sampling = self._vf.SamplingConfig()
        return self._vf.Agent(
            self._agents.resolve_agent(
                self._spec, model=MODEL, client=client, sampling=sampling, harness=self._harness
            )
        )

    async def _shared_tools(self) -> dict[str, Any]:
        """Return the servers of the taskset's own tools, which the first rollout starts for all."""
        async with self._starting:
            shared = self._shared
            if shared is None:
                shared = await self._serving.enter_async_context(self._env.shared_tools())
                self._shared = shared
        return shared

    def _check(self, original: Any) -> None:
        """Raise unless the harness can work on a task in the runtime."""
        compiling = import_optional("verifiers.v1.utils.compile", "verifiers")
        loaders = import_optional("verifiers.v1.utils.loaders", "verifiers")
        if original.data.prompt is None:
            raise DataError(f"verifiers task {original.data.idx} has no prompt", expected="a prompt")
        tools = [*original.toolsets(original.config), *self._env.taskset.toolsets(self._env.taskset.config)]
        try:
            harness = loaders.load_harness(self._spec.harness or self._harness)
            runtime = compiling.resolve_runtime_config(self._spec.runtime, original)
            compiling.validate_pairing(harness, type(original), runtime, tools=tools)
        except (ValueError, TypeError) as error:
            raise DataError(
                f"verifiers task {original.data.idx} cannot be run by this harness and runtime",
                got=error,
                remedy="choose others by env.harness and env.runtime",
            ) from error


def _load(config: VerifiersProgramConfig) -> Any:
    """Return verifiers' environment of a taskset with one agent, by the library's own loader."""
    loaders = import_optional("verifiers.v1.utils.loaders", "verifiers")
    agent = {"runtime": config.runtime} | ({} if config.harness is None else {"harness": config.harness})
    table = {"taskset": {"id": config.taskset, **config.options}, "agent": agent}
    try:
        env = loaders.load_environment(loaders.resolve_env_config(table))
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # raised by loader and config
        raise RecipeError(
            f"verifiers cannot load the taskset {config.taskset!r} with these keys",
            got=f"{table}: {error}",
            expected="a module that exports one Taskset by __all__, and keys of its config and its harness",
        ) from error
    single = import_optional("verifiers.v1.envs.single_agent", "verifiers").SingleAgentEnv
    if type(env) is not single:
        raise RecipeError(
            f"the taskset {config.taskset!r} has an environment of its own",
            got=type(env).__name__,
            expected="a taskset with one agent, which verifiers' SingleAgentEnv runs",
        )
    return env


@contextmanager
def _variable(key: str) -> Iterator[str]:
    """Yield the name of an environment variable with a key, from which verifiers' clients read it.

    Verifiers passes no variable with API_KEY in its name on to processes.
    """
    name = f"TRUING_API_KEY_{uuid.uuid4().hex}"
    os.environ[name] = key
    try:
        yield name
    finally:
        del os.environ[name]


def _outcome(trace: Any, task_id: str) -> dict[str, Any]:
    """Return the reward of a trace, and what it consists of."""
    if not trace.ok:
        error = trace.last_error
        raise ProgramError(f"verifiers could not run task {task_id}", got=f"{error.type}: {error.message}")
    unscored = [name for name, reward in trace.rewards.items() if reward is None]
    if unscored or not trace.rewards:
        raise ProgramError(
            f"verifiers did not score task {task_id}", got=unscored, expected="a number per reward"
        )
    return {
        "reward": float(trace.reward),
        "rewards": {name: float(reward.value) for name, reward in trace.rewards.items()},
        "metrics": dict(trace.metrics),
        "stopped_by": trace.stop_condition,
    }


def _reward(rollout: Rollout, task: Task) -> float:
    """Return the weighted sum of the task's own rewards."""
    return rollout.outcome["output"]["reward"]
