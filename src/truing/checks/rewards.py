"""Checks of your own reward functions before a model is loaded: their arguments, and a call of each."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from truing.envs.base import Env, MultiTurnEnv
from truing.envs.isolation import open_isolated
from truing.envs.program_env import ProgramEnv
from truing.errors import JudgeUnavailable, RecipeError, RewardError, SkipGroup
from truing.rewards import RewardFn, grade, prepare, takes_workspace
from truing.rollouts.workers.calls import call_result
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sampling_params import RAW
from truing.types.status import FinishReason, Status
from truing.utils.format import did_you_mean

BATCHED = {"prompts", "completions"}
"""Arguments of the reward functions of TRL, which grade a batch."""


def check_rewards(env: Env, call: bool = True, graded: bool = True) -> None:
    """Check each reward's arguments, and call your own ones once with a made-up answer.

    Rewards of Truing are not called, since a judge would be asked. The outcome is that of a new episode; if
    none can be opened, no reward is called: the checks of the environment report it. Nor is one called for
    programs, which would have to run.

    Args:
        env: the environment.
        call: whether rewards may be called in this process.
        graded: whether anything is graded, so that there must be a reward.

    Raises:
        RewardError: A reward is not a function with a weight, takes other arguments, raises, or returns
            something other than a finite number.
    """
    rewards: Any = env.rewards  # from user code, so unchecked
    if not isinstance(rewards, Mapping) or (graded and not rewards):
        raise RewardError(
            "the environment has no rewards",
            got=f"{rewards!r:.200}",
            expected="name → (function, weight), at least one",
            remedy="name one in [env.rewards] of a dataset, or pass rewards= in Python",
        )
    for name, reward in rewards.items():
        _check_form(name, reward)
        _check_arguments(name, reward[0])
    own = {name: reward for name, reward in rewards.items() if not _is_builtin(reward[0])}
    if not call or not own or isinstance(env, ProgramEnv) or not (tasks := env.tasks("train")):
        return
    outcome: Mapping[str, Any] | None = {}
    if isinstance(env, MultiTurnEnv):
        outcome = call_result(partial(_first_outcome, env, tasks[0])).value
    if outcome is not None:
        with suppress(JudgeUnavailable, SkipGroup):  # the run decides what follows
            rollout = _made_up_rollout(tasks[0], outcome)
            prepare(own, [rollout])
            grade(rollout, own)


def check_shaping(shaping: Sequence[str], rewards: Mapping[str, Any]) -> None:
    """Raise if doctor.shaping names a part that the reward does not have."""
    for name in shaping:
        if name not in rewards:
            raise RecipeError(
                f"doctor.shaping names {name!r}, which is not a part of the reward",
                got=list(shaping),
                expected=", ".join(rewards),
                remedy=did_you_mean(name, rewards),
            )


def _first_outcome(env: MultiTurnEnv, task: Task) -> Mapping[str, Any]:
    """Return the outcome of an episode without a turn."""
    return open_isolated(env, task).outcome()


def _made_up_rollout(task: Task, outcome: Mapping[str, Any]) -> Rollout:
    """Return a finished rollout of a task with its demonstration, or the answer "…"."""
    text = task.demonstration if isinstance(task.demonstration, str) else "…"
    ids = torch.zeros(1, dtype=torch.long)
    turn = Turn(
        context_ids=ids,
        context_origin=ids.to(torch.uint8),
        token_ids=ids,
        origin=ids.to(torch.uint8),
        structure=ids.bool(),
        sampler_logprob=torch.zeros(1),
        finish_reason=FinishReason.STOP,
        sampler_version=0,
        weight_digest="",
    )
    messages = ({"role": "assistant", "content": text},)
    return Rollout(
        "trial", "trial", task, (turn,), text, Status.DONE, RAW, messages=messages, outcome=outcome
    )


def _check_form(name: str, reward: Any) -> None:
    """Raise unless a reward is a function and a weight."""
    if not isinstance(reward, tuple | list) or len(reward) != 2 or not callable(reward[0]):
        raise RewardError(
            f"reward {name!r} is not a function with a weight",
            got=f"{reward!r:.200}",
            expected="(function, weight), such as (exact, 1.0)",
        )


def _check_arguments(name: str, function: RewardFn) -> None:
    """Raise unless a function can be called with a rollout and its task."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in function without one
        return
    remedy = "take the rollout and its task: def reward(rollout, task) -> float"
    if BATCHED & signature.parameters.keys():
        remedy = (
            "grade one rollout: def reward(rollout, task) -> float, where rollout.text is the completion,"
            " task.messages the prompt, and task.answer and task.info the columns of the row"
        )
    else:
        try:
            signature.bind(None, None, **({"workspace": None} if takes_workspace(function) else {}))
            return
        except TypeError:
            pass
    raise RewardError(
        f"reward {name!r} takes other arguments than a reward of Truing",
        got=f"{getattr(function, '__qualname__', repr(function))}{signature}",
        expected="(rollout, task)",
        remedy=remedy,
    )


def _is_builtin(function: Any) -> bool:
    """Whether a reward is one of Truing."""
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    return module == "truing" or module.startswith("truing.")
