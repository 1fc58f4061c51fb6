"""What a program asks of sampling, against what the recipe declares: only the recipe's is trained."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.envs.program_env import EVERYTHING
from truing.types.sampling_params import SamplingParams


def _equal(asked: Any, declared: Any) -> bool:
    return asked == declared


def _same_top_k(asked: Any, declared: Any) -> bool:
    return max(asked, 0) == declared  # vLLM has −1 where it is off


def _at_least(asked: Any, declared: Any) -> bool:
    return asked >= declared


def _at_most(asked: Any, declared: Any) -> bool:
    return asked <= declared


@dataclass(frozen=True)
class _Declared:
    """A sampling parameter that an option asks for."""

    name: str
    satisfies: Callable[[Any, Any], bool] = _equal  # whether what is declared does what is asked


NOTED = frozenset({"strict"})
"""Options that are noted where they are not met, not refused.

``strict`` asks that the arguments of calls match the tool's schema, which they do under ``episode.grammar``.
Frameworks set it for all tools, not their users, and check arguments themselves: OpenAI's may be cut off. A
policy is to learn from a call that does not match.
"""

OPTIONS = {
    **{
        name: _Declared(name)
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
    },
    "repetition_penalty": _Declared("repetition_penalty"),
    "top_k": _Declared("top_k", _same_top_k),
    "max_tokens": _Declared("max_new_tokens", _at_least),
    "min_tokens": _Declared("min_new_tokens", _at_most),
}
"""Options of requests that a recipe declares, by OpenAI's names and, beyond those, vLLM's."""


def overridden(
    wanted: Mapping[str, Any], declared: SamplingParams, override: Set[str], *, constrained: bool
) -> tuple[str, ...]:
    """Return the options of a call that it does not get, since the recipe overrides them, or cannot promise.

    Args:
        wanted: what a call asks for (``ModelCall.wanted``).
        declared: how the policy samples in this rollout: an evaluation may be greedy.
        override: options that programs may ask for and do not get (``CallRules.override``); "all" is all.
        constrained: whether calls of tools always match their schemas.

    Raises:
        CallRefused: The call asks for something else than is declared, which the recipe does not override. It
            names each such option, with the remedy.
    """
    met = NOTED if constrained else frozenset[str]()
    others = [
        name for name, asked in wanted.items() if name not in met and not _is_declared(name, asked, declared)
    ]
    refused = [name for name in others if name not in NOTED and not {name, EVERYTHING} & override]
    if refused:
        raise CallRefused(400, _refusal({name: wanted[name] for name in refused}, declared))
    return tuple(others)


def _is_declared(name: str, asked: Any, declared: SamplingParams) -> bool:
    """Whether the policy samples as an option asks."""
    if name == "stop_token_ids":
        return isinstance(asked, list) and all(each in declared.stop_ids for each in asked)
    if name not in OPTIONS or not isinstance(asked, int | float) or isinstance(asked, bool):
        return False
    return OPTIONS[name].satisfies(asked, getattr(declared, OPTIONS[name].name))


def _refusal(refused: Mapping[str, Any], declared: SamplingParams) -> str:
    """Return the text of a refusal: what was asked, what is declared, the remedy."""
    lines = [f"  {name} = {_shown(asked)}: {_of_recipe(name, declared)}" for name, asked in refused.items()]
    names = ", ".join(f'"{name}"' for name in refused)
    return "\n".join(
        [
            "the program asks the policy for what the recipe does not declare:",
            *lines,
            "remedy: take the option out of the program, set the recipe's key to the same, or write"
            f" override = [{names}] in [env]: then the program gets what the recipe declares",
        ]
    )


def _of_recipe(name: str, declared: SamplingParams) -> str:
    if name not in OPTIONS:
        return "the policy samples without it"
    key = OPTIONS[name].name
    return f"the recipe has sampling.{key} = {getattr(declared, key)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]} […]"
