"""An OpenEnv server: the policy's turns are its steps, and it computes the reward."""

import asyncio
import json
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truing.config import FrozenModel, PositiveFloat, PositiveInt
from truing.envs.adapters.mcp_session import run_coroutine, shared_loop
from truing.envs.base import Episode, Split
from truing.envs.data.generated import draw_distinct
from truing.envs.optional_packages import import_optional
from truing.envs.tools import Tool, ToolEpisode, ToolError
from truing.errors import DataError, TruingError
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.rollout import Rollout, Task
from truing.utils.http_request import request
from truing.utils.parse import parse_json
from truing.utils.rng import seed_of

MAX_SEED = 2**31
"""Seeds are below this, so that every random number library of a server takes them."""


class OpenEnvConfig(FrozenModel):
    """The server, the form of its actions, and the number of tasks."""

    url: str
    """The server's address."""
    text_field: str | None = None
    """Field of the action that takes the policy's text; without it, actions are calls of the tool `act`."""
    shown_field: str | None = None
    """Field of the observation that the policy reads; if not set, the whole observation as JSON."""
    train: PositiveInt = 256
    """How many tasks to train on: seeds whose first observations all differ."""
    eval: PositiveInt = 64
    """How many tasks to evaluate on, none of them trained on."""
    seed: int = 0
    """Another seed generates other tasks and another split."""
    timeout: PositiveFloat = 60.0
    """Time limit of connecting and of each step, in seconds."""
    system: str = ""
    """The system message; empty for none."""


class OpenEnv:
    """Tasks are seeds; the reward is the sum over the environment's steps."""

    Config = OpenEnvConfig
    notes: Sequence[str] = ()

    def __init__(self, config: OpenEnvConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"return": (_sum_of_rewards, 1.0)}
        session = ServerSession(config)
        self._action = _action(config)
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": self._make(session, "train", config.train),
            "eval": self._make(session, "eval", config.eval),
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._tasks[split]

    def open(self, task: Task) -> Episode:
        """Return an episode in its own session, at the observation that the task shows."""
        session = ServerSession(self.config)
        observation = session.reset(task.answer)
        if observation != task.messages[-1]["content"]:
            raise DataError(
                f"the OpenEnv server shows another start than before for the seed of task {task.task_id}",
                got=observation,
                expected=task.messages[-1]["content"],
                remedy="make its reset(seed=…) depend on the seed alone",
            )
        return _TextEpisode(session) if self._action is None else _ToolEpisode(session, self._action)

    def _make(self, session: "ServerSession", split: Split, count: int) -> list[Task]:
        """Return the first ``count`` tasks of a split."""
        config = self.config
        system = [{"role": "system", "content": config.system}] if config.system else []

        def draw(attempt: int) -> tuple[str, int]:
            seed = seed_of("openenv", config.seed, attempt) % MAX_SEED
            return session.reset(seed), seed

        return [
            Task(
                task_id=f"openenv-{seed}",
                family="openenv",
                messages=(*system, {"role": "user", "content": observation}),
                answer=seed,
                tools=() if self._action is None else (self._action,),
            )
            for observation, seed in draw_distinct(draw, split, count, config.seed, "openenv")
        ]


class ServerSession:
    """One session with the server, and its rewards."""

    def __init__(self, config: OpenEnvConfig) -> None:
        self.config = config
        self.done = False
        self.rewards: list[float] = []
        self.observation: Mapping[str, Any] = {}
        client = import_optional("openenv.core", "openenv").GenericEnvClient
        self._client = client(
            base_url=config.url, connect_timeout_s=config.timeout, message_timeout_s=config.timeout
        )
        self._close = weakref.finalize(self, _disconnect, self._client)

    def reset(self, seed: int) -> str:
        """Reset; return the first observation as the policy reads it."""
        return self._take(run_coroutine(_called(self._client.reset, seed=seed), self.config.timeout))

    def step(self, action: Mapping[str, Any]) -> str:
        """Step; return the next observation as the policy reads it."""
        result = run_coroutine(_called(self._client.step, dict(action)), self.config.timeout)
        if result.reward is not None:
            self.rewards.append(float(result.reward))
        return self._take(result)

    def outcome(self) -> Mapping[str, Any]:
        """Return the rewards of all steps that had one, and the last observation."""
        return {"rewards": list(self.rewards), "done": self.done, "observation": self.observation}

    def _take(self, result: Any) -> str:
        """Store the server's answer and return its observation."""
        self.done = result.done
        self.observation = {name: value for name, value in result.observation.items() if name != "metadata"}
        if self.done:
            self._close()
        field = self.config.shown_field
        if field is None:
            return json.dumps(self.observation, ensure_ascii=False)
        if field not in self.observation:
            raise DataError(
                "the observation lacks the field that env.shown_field names",
                got=", ".join(self.observation),
                expected=field,
            )
        return str(self.observation[field])


class _TextEpisode:
    """An episode whose actions are the policy's text."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the next observation as the user's message."""
        field = self._session.config.text_field
        assert field is not None  # else the policy calls a tool
        observation = self._session.step({field: message.content})
        return [] if self._session.done else [{"role": "user", "content": observation}]

    def outcome(self) -> Mapping[str, Any]:
        """Return the environment's rewards."""
        return self._session.outcome()


class _ToolEpisode(ToolEpisode):
    """An episode whose actions are the arguments of the policy's tool call."""

    def __init__(self, session: ServerSession, action: ToolSpec) -> None:
        def act(**arguments: Any) -> str:
            if session.done:
                raise ToolError("the episode is over")
            return session.step(arguments)

        super().__init__([Tool(action, act)], session.outcome)
        self._session = session

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the next observation as the tool's message."""
        replies = super().reply(message)
        return [] if self._session.done else replies


def _action(config: OpenEnvConfig) -> ToolSpec | None:
    """Return the tool of an action; None if actions are text."""
    try:
        answer = request("GET", f"{config.url}/schema", config.timeout)
        schema = parse_json(answer.body)["action"]
        fields = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    except OSError as error:
        raise TruingError(
            f"the OpenEnv server {config.url} cannot be reached", got=error, remedy="start it first"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{config.url}/schema does not describe an action",
            got=error,
            expected='JSON with "action", the schema of an object',
            remedy="look whether env.url is the address of an OpenEnv server",
        ) from error
    if config.text_field is None:
        return ToolSpec("act", schema.get("description", "Act."), schema | {"properties": fields})
    if config.text_field not in fields:
        raise DataError(
            "the action lacks the field that env.text_field names",
            got=", ".join(fields),
            expected=config.text_field,
        )
    return None


def _sum_of_rewards(rollout: Rollout, task: Task) -> float:
    """Return the sum of the environment's rewards; for a truncated rollout, those until then."""
    if rollout.outcome["done"] and not rollout.outcome["rewards"]:
        raise DataError(f"the OpenEnv server gave no reward in an episode of task {task.task_id}")
    return math.fsum(rollout.outcome["rewards"])


async def _called(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a method of a client returns; openenv 0.10 blocks where no event loop runs."""
    return await method(*arguments, **named)


def _disconnect(client: Any) -> None:
    """End a session without waiting for it."""
    asyncio.run_coroutine_threadsafe(_called(client.close), shared_loop())
