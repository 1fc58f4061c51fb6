"""The words with which a trace declares its trainer's settings: a closed vocabulary.

A word that is not in it is an error that names the nearest, since a misspelt word must not switch a rule
off. ``other``, or ``other: any text``, is always allowed, and leaves the setting unknown.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from truing.doctor.evidence import Setup
from truing.errors import RecordError
from truing.ops.correction import Method
from truing.ops.masks import MaskPolicy
from truing.utils.format import shorten

ADVANTAGES = ("group", "group_population", "batch", "none", "loo", "loo_scaled", "gae", "return")

AGGREGATIONS = (
    *("token_mean", "rank_token_mean", "micro_batch_token_mean", "token_sum"),
    *("sequence_mean", "sequence_sum", "sequence_total", "prompt_mean", "generation_token_mean"),
)

WORDS: Mapping[str, tuple[str, ...]] = {
    "algo": ("sft", "rft", "reinforce", "rloo", "grpo", "ppo"),
    "mask": get_args(MaskPolicy),
    "advantage": ADVANTAGES,
    "advantage_per": ("episode", "turn"),
    "surrogate": ("clip", "cispo", "reinforce", "dft"),
    "ratio": ("token", "sequence", "product"),
    "aggregation": AGGREGATIONS,
    "kl_where": ("loss", "reward"),
    "kl_estimator": ("k1", "k2", "k3"),
    "kl_weight": ("detached", "ratio", "score", "none"),
    "truncated": ("keep", "mask", "penalize"),
    "correction": ("off", *get_args(Method)),
    "baseline": ("step", "none"),
    "schedule": ("constant", "linear", "cosine"),
}

SAME = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_total",
    "seq-mean-token-sum-norm": "sequence_sum",
    "k1+": "k1",
    "low_var_kl": "k3",
    "off-policy": "off",
}
"""Words of verl, with ours."""

NOT_DECLARED = (
    *("trainer", "columns", "logged_every", "origin_source"),
    *("kl_cap", "kl_cap_action", "bootstrap_coef", "bootstrap_steps", "equal_groups"),
    "min_trained_tokens",
)
"""Fields of ``Setup`` that no trace declares: what it is read from says them, or they are Truing's own."""

OF_THE_LOSS = (
    *("surrogate", "ratio", "aggregation", "clip_low", "clip_high", "dual_clip", "max_ratio", "min_ratio"),
    *("kl_coef", "kl_where", "kl_estimator", "kl_weight", "entropy_coef", "row_drift", "entropy_share"),
    *("most_ratio", "correction", "correction_low", "correction_high"),
)
"""Settings without a word of which the loss has no closed form, though some may be left undeclared."""

NAMES = tuple(item.name for item in fields(Setup) if item.name not in NOT_DECLARED)

RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("gamma", "lam"), (0.0, 1.0)),
    **dict.fromkeys(("group_size", "inner_steps", "max_new_tokens", "generation_micro_batches"), (1.0, 1e9)),
    **dict.fromkeys(("bos_id",), (-1.0, 2**31)),
    **dict.fromkeys(
        (
            *("advantage_eps", "clip_low", "clip_high", "max_ratio", "learning_rate"),
            *("max_grad_norm", "value_clip"),
        ),
        (0.0, 1e9),
    ),
    "dual_clip": (1.0, 1e9),
    "entropy_share": (0.0, 1.0),
}
"""The values that a setting may have."""

ADAPTER = TypeAdapter(Setup)


def declared_setup(words: Mapping[str, Any], producer: str, where: str) -> tuple[Setup, dict[str, str]]:
    """Return the declared settings, and those that are declared as ``other``, with what stands there.

    Args:
        words: settings by name.
        producer: the trainer.
        where: the file, for errors; they are RecordErrors that name key, value and the nearest word.
    """
    known: dict[str, Any] = {"trainer": producer, "loss_scale": None}
    others: dict[str, str] = {}
    for name, value in words.items():
        if name not in NAMES:
            raise RecordError(f"{where}: there is no such setting", got=name, expected=_nearest(name, NAMES))
        if isinstance(value, str) and (value == "other" or value.startswith("other:")):
            others[name] = value
            continue
        value = SAME.get(value, value) if isinstance(value, str) else value
        if name in WORDS and value is not None and value not in WORDS[name]:
            raise RecordError(
                f"{where}: setup.{name} has an unknown word",
                got=shorten(repr(value)),
                expected=_nearest(str(value), WORDS[name]),
                remedy='"other: what it does" leaves it open, and the rules that need it do not run',
            )
        known[name] = value
    _check_ranges(known, where)
    if others.keys() & set(OF_THE_LOSS):
        known.pop("plain", None)
    try:
        return ADAPTER.validate_python(known, strict=False), others
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RecordError(
            f"{where}: setup.{'.'.join(map(str, first['loc']))} is wrong",
            got=shorten(repr(first["input"])),
            expected=first["msg"],
        ) from error


def words_of(setup: Setup) -> dict[str, Any]:
    """Return the words that declare a setup: ``declared_setup`` returns it again."""
    nothing, _ = declared_setup({}, setup.trainer, "")
    return {name: getattr(setup, name) for name in NAMES if getattr(setup, name) != getattr(nothing, name)}


def _check_ranges(known: Mapping[str, Any], where: str) -> None:
    """Raise a RecordError at a number that no trainer has."""
    for name, value in known.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = RANGES.get(name, (-math.inf, math.inf))
            if not (math.isfinite(value) and low <= value <= high):
                expected = f"a finite number from {low:g} to {high:g}"
                raise RecordError(f"{where}: setup.{name} is out of range", got=value, expected=expected)


def _nearest(word: str, known: tuple[str, ...]) -> str:
    """Return the nearest words, or all of a short list."""
    near = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    if near:
        return " or ".join(near)
    return f"one of {', '.join(known)}" if len(known) < 20 else "a setting that `truing explain trace` lists"
