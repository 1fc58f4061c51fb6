"""Recipe keys in errors and advice as the arguments of TRL's configs that they are made of."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from truing.config import Recipe
from truing.config.overrides import dotted_keys
from truing.errors import TruingError
from truing.trl.arguments.configs import CONFIG_DEFAULTS
from truing.trl.arguments.fields import arguments_of

UNTRAINED = "untrained.toml"
"""The recipe of a script in its ``output_dir``, for `truing engine start` and ``evaluate()``."""

REMEDIES = {
    "engine.python": "install vLLM beside Truing (pip install vllm), or start a server where both are, with"
    " `truing engine start RECIPE`, and set vllm_mode='server' and vllm_server_base_url"
}
"""Remedies for keys that no argument sets, and that a script needs."""

CARRIED = ("learning_rate", "max_new_tokens", "temperature", "warmup_steps", "steps")
"""Last parts of keys whose values are those of the argument."""


@cache
def arguments_by_key(config: str) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of a config by the recipe key that they become; a key may have none."""
    keys = [key for key in dotted_keys() if "." in key or "_" in key]
    return {key: tuple(n for n in arguments_of(key) if n in CONFIG_DEFAULTS[config]) for key in keys}


def carried_arguments(config: str, recipe: Recipe, optimizer_steps: int) -> dict[str, str]:
    """Return the argument for each key whose new value a script can give as it is.

    Args:
        config: name of the config.
        recipe: made of it.
        optimizer_steps: of a step; TRL's steps count them.
    """
    return {
        key: names[0]
        for key, names in arguments_by_key(config).items()
        if names
        and key.rpartition(".")[2] in CARRIED
        and key.partition(".")[0] in (*recipe.stages, "sampling", "optimizer")
        and (optimizer_steps == 1 or not key.endswith("steps"))
    }


@contextmanager
def naming_arguments(config: str, recipe: str = "RECIPE") -> Iterator[None]:
    """Name TRL's arguments in errors that name recipe keys; ``recipe`` is the file of the script's recipe."""
    try:
        yield
    except TruingError as error:
        got, expected = (_named(x, config) if isinstance(x, str) else x for x in (error.got, error.expected))
        # in place: its class and its traceback stay
        TruingError.__init__(
            error,
            _named_key(error.what, config) or _named(error.what, config),
            got=got,
            expected=expected,
            remedy=_remedy(error.remedy, config).replace("RECIPE", recipe),
        )
        raise


def _named_key(what: str, config: str) -> str:
    """Return what is wrong with a recipe key by the arguments that became it; "" if it is something else."""
    key = re.match(r"recipe key '([\w.]+)'", what)
    names = arguments_by_key(config).get(key[1], ()) if key else ()
    return f"{config}: {' or '.join(names)} ({key[0]}){what[key.end() :]}" if key and names else ""


def _named(text: str, config: str) -> str:
    """Return a text with the arguments before each key that has some."""

    def with_arguments(key: re.Match[str]) -> str:
        names = arguments_by_key(config)[key[0]]
        return f"{' or '.join(names)} ({key[0]})" if names else key[0]

    return _pattern().sub(with_arguments, text)


def _remedy(remedy: str, config: str) -> str:
    """Return a remedy that a script can follow, or that says which keys no argument sets."""
    unset = [key for key in _pattern().findall(remedy) if not arguments_by_key(config)[key]]
    for key in unset:
        if key in REMEDIES:
            return REMEDIES[key]
    named = _named(remedy, config)
    return f"{named}; no argument of {config} sets {', '.join(dict.fromkeys(unset))}" if unset else named


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of a recipe key in a text."""
    keys = sorted((key for key in dotted_keys() if "." in key or "_" in key), key=len, reverse=True)
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, keys))})(?![\w/]|\.\w)")
