"""The arguments that functions of a script take."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truing.errors import RewardError

STARRED = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def parameter_names(function: Callable[..., Any]) -> set[str]:
    """Return the arguments that a function names."""
    signature = _signature(function)
    return set() if signature is None else {*_named(signature)}


def check_signature(name: str, function: Callable[..., Any], given: Sequence[str]) -> None:
    """Raise unless a function takes the arguments ``given`` and needs no others."""
    if not callable(function):
        raise RewardError(
            "reward_funcs has something that cannot be called",
            got=f"{function!r:.100}",
            expected="functions, sequence classifiers, or names of such models, in a list",
        )
    if (signature := _signature(function)) is None:
        return
    named = _named(signature)
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    lacking = [key for key, each in named.items() if each.default is each.empty and key not in given]
    rest = [] if takes_all else [key for key in given if key not in named]
    if lacking or rest:
        meant = (
            f"{key}: " + (f"it gets {key}s" if f"{key}s" in given else "there is no such column")
            for key in lacking
        )
        raise RewardError(
            f"reward function {name!r} does not take the arguments of TRL's reward functions",
            got=f"{name}{signature}",
            expected=f"some of {', '.join(given)}",
            remedy="; ".join([*meant, *(["let it take **kwargs"] if rest else [])]),
        )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; some builtins have none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _named(signature: inspect.Signature) -> Mapping[str, inspect.Parameter]:
    """Return the parameters with a name."""
    return {key: each for key, each in signature.parameters.items() if each.kind not in STARRED}
