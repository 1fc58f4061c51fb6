"""Overrides: single recipe keys, changed on the command line or by the guard."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, get_args

from pydantic import BaseModel

from truing.config.other_trainers import SAME_MEANING
from truing.config.recipe import Recipe, Stage
from truing.errors import RecipeError
from truing.utils.parse import parse_toml


def with_overrides(table: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the table with the overrides applied in order."""
    copy, found = deepcopy(dict(table)), []
    # also after lora=false, which refuses an adapter
    for override in sorted(overrides, key=lambda each: each != "lora.adapter="):
        try:
            apply_override(copy, override)
        except RecipeError as error:
            found.append(error)
    if found:
        raise RecipeError.joined(found)
    return copy


def apply_override(table: dict[str, Any], override: str) -> None:
    """Set one ``a.b=value`` in place; a value that is not TOML is a string, ``a.b=`` removes the key."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError("an override is not key=value", got=override, expected="e.g. grpo.steps=20")
    *parents, last = key.split(".")
    if key == "lora" and _value(text) is False and isinstance(table.get("lora"), dict):
        _keep_adapter(table["lora"])
    if not text and key not in dotted_keys() and parents != ["env"]:
        raise unknown_key(key, got=override)
    for parent in parents:
        child = table.setdefault(parent, {})
        if not isinstance(child, dict):
            child = table[parent] = {}
        table = child
    if text:
        table[last] = _value(text)
    else:
        table.pop(last, None)


def _keep_adapter(lora: Mapping[str, Any]) -> None:
    """Raise if a recipe with an adapter to start from is to train all weights, without that adapter."""
    if "adapter" in lora:
        raise RecipeError(
            "lora=false would start from the base, without the adapter of lora.adapter",
            got=lora["adapter"],
            expected="lora.adapter= (a new adapter), or a model with the adapter merged",
            remedy="merge it: `truing export RUN --to FOLDER`, or merge_and_unload and save_pretrained of"
            " peft; then model.name = FOLDER and lora = false in the recipe",
        )


def unknown_key(key: str, got: object, stages: Sequence[str] = ()) -> RecipeError:
    """Return the error for a key that no recipe has: the keys of its table, and the nearest of all.

    Args:
        key: dotted.
        got: its value.
        stages: of the recipe; others have no nearest key. All by default.
    """
    table = key.rpartition(".")[0]
    below = f"{table}." if table else ""
    valid = [each.removeprefix(below) for each in dotted_keys() if each.startswith(below)]
    names = ", ".join(each for each in valid if "." not in each)
    nearest = nearest_key(key, stages)
    return RecipeError(
        f"unknown recipe key {key!r}",
        got=got,
        expected=f"a key of [{table}]: {names}" if table else f"one of {names}",
        remedy=f"did you mean {nearest}?" if nearest else "remove it, or use one of these keys",
    )


def nearest_key(key: str, stages: Sequence[str] = ()) -> str:
    """Return the recipe key that was meant; empty if none is near.

    In this order: a misspelled key of the same table, one of the same meaning in other trainers, one of the
    same name in another table, one of similar spelling in the same table, one of similar spelling anywhere.

    >>> nearest_key("grpo.lr"), nearest_key("grpo.temperature"), nearest_key("grpo.step")
    ('grpo.learning_rate', 'sampling.temperature', 'grpo.steps')
    """
    table, _, name = key.rpartition(".")
    others = {*get_args(Stage)} - {*(stages or get_args(Stage)), table}
    keys = [each for each in dotted_keys() if each.partition(".")[0] not in others]
    same = SAME_MEANING.get(name, name)
    candidates = [f"{table}.{same}", same, *(each for each in keys if each.endswith(f".{same}"))]
    exact = next((each for each in candidates if each in keys and each != key), "")
    in_table = [each for each in keys if table and each.startswith(f"{table}.")]
    misspelled = "" if name in SAME_MEANING else _similar(key, in_table, 0.94)
    return misspelled or exact or _similar(key, in_table, 0.8) or _similar(key, keys, 0.6)


def _similar(key: str, keys: Sequence[str], cutoff: float) -> str:
    """Return the most similar of some keys; empty if the similarity of none is above ``cutoff``."""
    return next(iter(difflib.get_close_matches(key, keys, n=1, cutoff=cutoff)), "")


def dotted_keys(part: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[str]:
    """Yield all keys of a recipe except those of its environment."""
    for name, item in part.model_fields.items():
        yield prefix + name
        for option in (item.annotation, *get_args(item.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from dotted_keys(option, f"{prefix}{name}.")


def _value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
