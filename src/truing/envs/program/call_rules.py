"""The rules of a program's calls, from the recipe."""

from collections.abc import Callable
from typing import Any

from truing.envs.imported import import_object
from truing.envs.program.config import CallOptions
from truing.envs.program_env import EVERYTHING, CallRules
from truing.errors import ProgramError, RecipeError
from truing.types.model_call import ModelCall

Trains = Callable[[ModelCall, bool], bool]


def call_rules(options: CallOptions) -> CallRules:
    """Return the rules that a recipe declares.

    Raises:
        RecipeError: `train` names no function.
    """
    names = (EVERYTHING,) if options.override == "all" else options.override
    return CallRules(frozenset(names), _trains(options), options.max_calls, options.max_tokens)


def _trains(options: CallOptions) -> Trains:
    """Return whether a conversation is trained, by its first call and whether it is a program's first."""
    chosen, text = _chosen(options.train), options.train_system

    def trains(call: ModelCall, first: bool) -> bool:
        return (text is None or text in _system(call)) and chosen(call, first)

    return trains


def _chosen(train: str) -> Trains:
    """Return the choice that ``train`` names."""
    if train == "first":
        return lambda call, first: first
    if train == "all":
        return lambda call, first: True
    function = import_object(train, "function that chooses conversations")
    if not callable(function):
        raise RecipeError(
            "recipe key 'env.train' names no function",
            got=f"{train} is a {type(function).__name__}",
            expected="a function (call, first) -> bool",
        )

    def choose(call: ModelCall, first: bool) -> bool:
        answer: Any = function(call, first)  # of user code, so unchecked
        if not isinstance(answer, bool):
            raise ProgramError(
                f"the function of env.train = {train!r} returned no truth value",
                got=f"{answer!r:.200}",
                expected="True for a conversation that is trained, else False",
            )
        return answer

    return choose


def _system(call: ModelCall) -> str:
    """Return the text of the system messages of a call."""
    return "\n".join(message["content"] for message in call.messages if message["role"] == "system")
