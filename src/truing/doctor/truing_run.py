"""A run of Truing as steps for the doctor: from its record, or from the current step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from truing.analysis.changed_settings import planned_steps, standing_rollbacks
from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.config import GrpoConfig, PolicyStage, Recipe, recipe_after_rollbacks, resolve
from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.ops.losses import OBJECTIVES
from truing.record import Event, RunReader
from truing.record.malformed import as_record_error
from truing.record.store import RUN
from truing.types.sampling_params import SamplingParams

ADVANTAGE_OF_STAGE = {"rloo": "loo", "reinforce": "return", "ppo": "gae"}
"""The advantage of each algorithm; GRPO declares its own."""

CHANGES = ("rollback", "resumed", "longer", "forked")
"""Kinds of events after which steps are trained with other settings."""

ADVANTAGE_EPS = 1e-4
"""Epsilon of Truing's advantage denominator, reward units."""


def setup_of(
    recipe: Recipe,
    stage: str,
    sampling_params: SamplingParams | None = None,
    bos_id: int | None = None,
    tools: Sequence[str] | None = None,
    rewards: Mapping[str, float] | None = None,
) -> Setup:
    """Return a recipe's settings of a stage.

    Args:
        recipe: of the run, with a guard's changes.
        stage: one of its stages.
        sampling_params: of the stage; None is unknown.
        bos_id: first id of a sequence; None if sequences begin without one.
        tools: tool names of the environment; None is unknown.
        rewards: the weight of each part of the reward; None is unknown.
    """
    cfg, adapter = recipe.stage(stage), recipe.lora
    common = {
        "algo": stage,
        "mask": recipe.episode.mask,
        "learning_rate": cfg.learning_rate,
        "warmup_steps": recipe.optimizer.warmup_steps,
        "schedule": recipe.optimizer.schedule,
        "steps": cfg.steps,
        "max_grad_norm": recipe.optimizer.max_grad_norm,
        "dropout": bool(adapter and adapter.dropout > 0),
        "reference_moves": recipe.reference.sync_every > 0,
        "stop_ids": None if sampling_params is None else sampling_params.stop_ids,
        "bos_id": -1 if bos_id is None else bos_id,
        "lora": bool(adapter),
        "tools": None if tools is None else tuple(tools),
        "max_new_tokens": recipe.sampling.max_new_tokens,
        "max_turns": recipe.episode.max_turns,
        "reward_weights": rewards,
        "shaping": recipe.doctor.shaping,
        "inner_steps": 1,
        "min_reward": getattr(cfg, "min_reward", None),
    }
    if not isinstance(cfg, PolicyStage):
        return Setup(**common)
    return replace(Setup(**common), **_policy_setup(recipe, stage, cfg))


def _policy_setup(recipe: Recipe, stage: str, cfg: PolicyStage) -> dict[str, Any]:
    """Return the additional settings of a stage with a policy loss."""
    objective, gates = OBJECTIVES[cfg.objective], recipe.gates
    declared = {"clip_low": cfg.clip_low, "clip_high": cfg.clip_high, "max_ratio": cfg.max_weight}
    bounds = {name: getattr(objective, name) if value is None else value for name, value in declared.items()}
    return bounds | {
        "inner_steps": cfg.inner_epochs * cfg.minibatches,
        "group_size": cfg.group_size,
        "advantage": cfg.advantage_scale if isinstance(cfg, GrpoConfig) else ADVANTAGE_OF_STAGE[stage],
        "advantage_per": getattr(cfg, "advantage_per", "episode"),
        "baseline": getattr(cfg, "baseline", None),
        "bootstraps": getattr(cfg, "truncation", "") == "bootstrap",
        "advantage_eps": ADVANTAGE_EPS,
        "ahead": recipe.engine.ahead,
        "on_policy": recipe.correction.method == "off" and not (recipe.lora and recipe.lora.dropout > 0),
        "surrogate": objective.surrogate,
        "ratio": objective.ratio,
        "aggregation": objective.aggregation,
        "kl_coef": recipe.kl.coef,
        "kl_where": recipe.kl.where,
        "kl_estimator": recipe.kl.estimator,
        "kl_weight": "detached",
        "entropy_coef": recipe.entropy.coef,
        "kl_target": recipe.kl.target,
        "kl_horizon": recipe.kl.horizon,
        "entropy_target": recipe.entropy.target,
        "entropy_step": recipe.entropy.step,
        "bootstrap_coef": recipe.bootstrap.coef,
        "bootstrap_steps": recipe.bootstrap.steps or None,
        "min_trained_tokens": gates.min_trained_tokens or None,
        "equal_groups": None if gates.equal_groups == "count" else gates.equal_groups,
        "kl_cap": recipe.kl.cap,
        "kl_cap_action": recipe.kl.cap_action,
        "gamma": getattr(cfg, "gamma", None),
        "lam": getattr(cfg, "lam", None),
        "whiten": getattr(cfg, "whiten", None),
        "value_coef": getattr(cfg, "value_coef", None),
        "value_clip": getattr(cfg, "value_clip", None),
        "truncated": gates.truncated,
        "truncated_penalty": gates.truncated_penalty,
        "overlong_tokens": gates.overlong_tokens,
        "overlong_penalty": gates.overlong_penalty,
        "min_ratio": gates.min_ratio,
        "most_ratio": gates.max_ratio,
        "correction": recipe.correction.method,
        "correction_low": None if recipe.correction.method.endswith("truncate") else recipe.correction.low,
        "correction_high": recipe.correction.high,
        "plain": True,
    }


class _Declared(NamedTuple):
    """What run.json says of steps: another thing before a fork than after it."""

    recipe: Recipe
    sampling_params: SamplingParams
    rewards: Mapping[str, float]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "_Declared":
        """Read the facts of run.json."""
        sampled: dict[str, Any] = {**facts["sampling_params"]}
        sampled["stop_ids"] = tuple(sampled["stop_ids"])
        return cls(resolve(facts["recipe"]), SamplingParams(**sampled), facts["judged"]["rewards"])


def recorded_steps(run: Path) -> Iterator[Step]:
    """Yield every step of a run directory, each with the kept part of earlier ones."""
    reader = RunReader(run)
    reader.check_complete()
    with as_record_error(f"{run / RUN}"):
        bos_id, tools, stages = (
            reader.run_fact("bos_id"),
            reader.run_fact("tools"),
            reader.run_fact("recipe", "stages"),
        )
        every = reader.events()
        gains = {stage: stage_gain(stage_evaluations(stage, stages, every)) for stage in stages}
        events = [event for event in every if event.kind in CHANGES]
        declared = [_Declared.of(each.payload["before"]) for each in events if each.kind == "forked"]
        declared.append(
            _Declared.of({name: reader.run_fact(name) for name in ("recipe", "sampling_params", "judged")})
        )
        places = [(stages.index(e.payload["stage"]), e.payload["step"]) for e in events if e.kind == "forked"]
    history = History()
    for line in reader.iter_steps():
        with as_record_error(f"step {line.step} of stage {line.stage}"):
            forks = sum(place <= (stages.index(line.stage), line.step) for place in places)
            under = declared[forks]
            now = recipe_at(under.recipe, events, line.stage, line.step)
            setup = setup_of(now, line.stage, under.sampling_params, bos_id, tools, under.rewards)
            step = replace(Step.of(reader.table(line), setup, history), gain=gains.get(line.stage))
        yield step
        history.add(line)


def recipe_at(recipe: Recipe, events: Sequence[Event], stage: str, step: int) -> Recipe:
    """Return the recipe of a step.

    A guard returns to a step, and repeats it and later ones under the settings of that rollback. A stage that
    was made longer had fewer steps before.

    Args:
        recipe: of the run.
        events: of the run, at least those of a kind in ``CHANGES``.
        stage: of the step.
        step: of the step, from 0.
    """
    cfg = recipe.stage(stage)
    planned = planned_steps(events, stage, step, cfg.steps)
    if planned != cfg.steps:
        recipe = recipe.model_copy(update={stage: cfg.model_copy(update={"steps": planned})})
    rollbacks = standing_rollbacks(events, stage)
    number = max((n for n, each in enumerate(rollbacks, 1) if each["to"] <= step), default=0)
    return recipe_after_rollbacks(recipe, stage, number)
