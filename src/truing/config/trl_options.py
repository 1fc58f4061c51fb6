"""Options of other trainers as recipe keys; docs/aliases.md has the differences of their conventions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from truing.config.overrides import with_overrides
from truing.config.recipe import Recipe
from truing.config.stages import PolicyStage
from truing.errors import RecipeError
from truing.utils.format import with_count

POLICY: Mapping[str, type[PolicyStage]] = {
    name: kind
    for name, item in Recipe.model_fields.items()
    for kind in get_args(item.annotation)
    if isinstance(kind, type) and issubclass(kind, PolicyStage)
}
"""The stages with a policy loss, which options of other trainers apply to."""

SCALES = {"true": "group", "false": "none", "group": "group", "batch": "batch", "none": "none"}
"""Values of ``--scale-rewards``, as ``grpo.advantage_scale``."""

FEW_PROMPTS = 4
"""Prompts per step below which a note warns that the step detects only large changes."""

Table = Mapping[str, Any]


@dataclass(frozen=True)
class TrlOptions:
    """Options as given; None or empty if not given."""

    datasets: Sequence[str] = ()
    batch_size: int | None = None
    num_generations: int | None = None
    max_steps: int | None = None
    learning_rate: float | None = None
    logging_steps: int | None = None
    scale_rewards: str | None = None
    kl_beta: float | None = None
    no_peft: bool = False
    max_prompt_length: int | None = None


@dataclass(frozen=True)
class TranslatedOptions:
    """``key=value`` overrides, to apply before those of the command line, and notes on them."""

    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def translate_options(
    trl_options: TrlOptions, recipe: Table, cli_overrides: Sequence[str] = ()
) -> TranslatedOptions:
    """Return options of other trainers as overrides of a recipe.

    Args:
        trl_options: the options.
        recipe: its table, as in its file.
        cli_overrides: overrides of the command line. They win, and decide the stages and the group size.

    Raises:
        RecipeError: The recipe has no key for an option, or an option has an invalid value.
    """
    independent = tuple(_stage_independent_overrides(trl_options))
    stage_options = _stage_overrides(trl_options, recipe, cli_overrides)
    overrides = (*independent, *stage_options.overrides)
    final = with_overrides(recipe, [*overrides, *cli_overrides])
    return TranslatedOptions(
        overrides, (*stage_options.notes, *(_full_weights(recipe, final) if trl_options.no_peft else ()))
    )


def _stage_independent_overrides(trl: TrlOptions) -> Iterator[str]:
    """Yield overrides that are the same in every recipe."""
    if trl.logging_steps not in (None, 1):
        raise RecipeError(
            "every step is recorded and judged: there is no other logging interval",
            got=f"--logging-steps {trl.logging_steps}",
            expected="--logging-steps 1",
            remedy="leave it out",
        )
    if trl.datasets:
        specs = _specs(trl.datasets)
        yield f"env.data={json.dumps(specs if len(specs) > 1 else specs[0], ensure_ascii=False)}"
    if trl.kl_beta is not None:
        yield f"kl.coef={trl.kl_beta}"
    if trl.no_peft:
        yield "lora=false"
    if trl.max_prompt_length is not None:
        yield f"episode.max_prompt_tokens={trl.max_prompt_length}"


def _specs(datasets: Sequence[str]) -> list[str]:
    """Return data specs: each option split at semicolons, since a spec contains commas."""
    specs = [spec.strip() for each in datasets for spec in each.split(";")]
    if not all(specs):
        raise RecipeError(
            "--datasets holds an empty spec",
            got=list(datasets),
            expected='specs separated by semicolons: "hub/id,config,split;rows.jsonl[:100]"',
        )
    return specs


def _stage_overrides(trl: TrlOptions, recipe: Table, cli_overrides: Sequence[str]) -> TranslatedOptions:
    """Return the overrides of the last policy stage, with notes."""
    options = {
        "--batch-size": trl.batch_size,
        "--num-generations": trl.num_generations,
        "--max-steps": trl.max_steps,
        "--learning-rate": trl.learning_rate,
        "--scale-rewards": trl.scale_rewards,
    }
    names = ", ".join(name for name, value in options.items() if value is not None)
    if not names:
        return TranslatedOptions()
    stages = _stages(with_overrides(recipe, cli_overrides))
    stage = _policy_stage(stages, names)
    keys = {
        "steps": trl.max_steps,
        "learning_rate": trl.learning_rate,
        "group_size": trl.num_generations,
    }
    overrides = [f"{stage}.{key}={value}" for key, value in keys.items() if value is not None]
    notes = []
    if trl.batch_size is not None:
        group = _key(with_overrides(recipe, [*overrides, *cli_overrides]), stage, "group_size")
        prompts, note = _prompts(trl.batch_size, group)
        overrides.append(f"{stage}.prompts_per_step={prompts}")
        notes.append(note)
    if trl.scale_rewards is not None:
        overrides.append(f"grpo.advantage_scale={_scale(trl.scale_rewards, stage)}")
    if other_stages := ", ".join(str(name) for name in stages if name != stage):
        notes.append(f"{names}: for stage {stage} alone; {other_stages} as in the recipe")
    return TranslatedOptions(tuple(overrides), tuple(notes))


def _policy_stage(stages: Sequence[str], names: str) -> str:
    """Return the last stage of a recipe with a policy loss."""
    candidates = [name for name in stages if name in POLICY]
    if not candidates:
        raise RecipeError(
            f"the recipe has no stage with a policy loss, which {names} would apply to",
            got=f"stages = {list(stages)}",
            expected=f"one of {', '.join(POLICY)}",
            remedy="set the keys of its stages directly, as in sft.steps=50",
        )
    return candidates[-1]


def _prompts(batch_size: int, group: object) -> tuple[int, str]:
    """Return prompts per step from rollouts per step, and a note."""
    if not isinstance(group, int) or group < 1 or batch_size % group:
        raise RecipeError(
            "--batch-size counts rollouts, and they are sampled in whole groups",
            got=f"--batch-size {batch_size} in groups of {group}",
            expected="a multiple of --num-generations",
            remedy="give both: --batch-size 64 --num-generations 8 is 8 prompts per step",
        )
    prompts = batch_size // group
    note = f"--batch-size {batch_size} counts rollouts: {with_count(prompts, 'prompt')} of {group} per step"
    if prompts < FEW_PROMPTS:
        note += "; so few detect only large changes: `truing lab plan` computes how many a given change needs"
    return prompts, note


def _scale(scale_rewards: str, stage: str) -> str:
    """Return what the centered rewards of a group are divided by."""
    if stage != "grpo":
        raise RecipeError(
            f"--scale-rewards applies to grpo alone: stage {stage} divides by no standard deviation",
            got=f"--scale-rewards {scale_rewards}",
            remedy="leave it out",
        )
    if scale_rewards.lower() not in SCALES:
        raise RecipeError(
            "--scale-rewards has an invalid value", got=scale_rewards, expected=", ".join(SCALES)
        )
    return SCALES[scale_rewards.lower()]


def _full_weights(recipe: Table, final: Table) -> Iterator[str]:
    """Yield a note if a learning rate chosen for an adapter now applies to all weights."""
    rates = {stage: _key(final, stage, "learning_rate") for stage in _stages(final)}
    rate_keys = [
        f"{stage}.learning_rate = {rate}"
        for stage, rate in rates.items()
        if rate is not None and rate == _key(recipe, stage, "learning_rate")
    ]
    if recipe.get("lora") and rate_keys:
        verb = "was" if len(rate_keys) == 1 else "were"
        names = ", ".join(rate_keys)
        yield f"--no-peft: {names} {verb} chosen for an adapter; all weights need about a tenth"


def _stages(table: Table) -> list[Any]:
    """Return the stages of a recipe that is not validated yet."""
    return table["stages"] if isinstance(table.get("stages"), list) else []


def _key(table: Table, stage: str, key: str) -> Any:
    """Return a key of a stage, or its default, or None."""
    part = table.get(stage)
    if isinstance(part, Mapping) and key in part:
        return part[key]
    return POLICY[stage].model_fields[key].get_default() if stage in POLICY else None
