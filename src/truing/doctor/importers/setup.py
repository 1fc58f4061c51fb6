"""A setup from a run's configuration, and the numbers whose meaning depends on it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from truing.doctor.evidence import Setup
from truing.doctor.importers.trainer_names import OPENRLHF, PLAIN, TRANSFORMERS, TRL, VERL, Trainer

K1, K3 = "kl_trained/k1", "kl_trained/k3"
VERL_KL = {"kl": K1, "k1": K1, "low_var_kl": K3, "k3": K3, "low_var_kl+": K3, "k3+": K3}
"""By `kl_loss_type`; a plus changes the gradient, not the number."""

CLIP = {
    "clip_ratio/region_mean": "clip/clipped_share",
    "clip_ratio/high_mean": "clip/high_share",
    "clip_ratio/low_mean": "clip/low_share",
}

SAMPLED = re.compile(r"reward|score|kl|advantage|completion|response|rollout|ratio|policy|objective", re.I)
"""In names that a log of supervised fine-tuning, or of pre-training, does not have."""

SINGLE_TURN_COUNT = 2
"""verl's count of turns for one question and one answer."""


def setup_of(trainer: Trainer, config: Mapping[str, Any], names: Sequence[str]) -> Setup:
    """Return the setup from a configuration and the names of a log; other settings are unknown."""
    if trainer is TRL:
        return _trl(config)
    if trainer is VERL:
        return _verl(config, critic="critic/values/mean" in names)
    supervised = any("loss" in name.lower() for name in names) and not any(map(SAMPLED.search, names))
    return Setup(
        trainer=trainer.name, algo="sft" if supervised and trainer in (TRANSFORMERS, PLAIN) else None
    )


def _trl(config: Mapping[str, Any]) -> Setup:
    low, high = config.get("epsilon"), config.get("epsilon_high")
    masked = config.get("mask_truncated_completions")
    grpo = _is_grpo(config)
    return Setup(
        trainer=TRL.name,
        algo="grpo" if grpo else "rloo" if _is_rloo(config) else None,
        group_size=config.get("num_generations"),
        clip_low=low,
        clip_high=low if high is None else high,
        kl_coef=config.get("beta"),
        kl_where="loss" if grpo else None,
        kl_estimator="k3" if grpo else None,
        truncated=None if masked is None else "mask" if masked else "keep",
        max_new_tokens=config.get("max_completion_length"),
        max_grad_norm=config.get("max_grad_norm"),
        learning_rate=config.get("learning_rate"),
    )


def _verl(config: Mapping[str, Any], critic: bool) -> Setup:
    actor, rollout = _part(config, "actor"), _part(config, "rollout")
    return Setup(
        trainer=VERL.name,
        algo="ppo" if critic else None,  # a critic learns from groups of equal reward too
        group_size=rollout.get("n"),
        learning_rate=actor.get("optim", {}).get("lr"),
        max_new_tokens=rollout.get("response_length"),
    )


def config_names(trainer: Trainer, config: Mapping[str, Any]) -> dict[str, str]:
    """Return numbers that are ours under this configuration, theirs → ours."""
    if trainer is TRL and _is_grpo(config):
        by_token = config.get("importance_sampling_level") == "token"
        # weighted by the ratio, unless `use_bias_correction_kl` is off
        return {"kl": "kl/weighted_k3"} | (CLIP if by_token else {})
    if trainer is TRL and _is_rloo(config):
        return {"kl": K1}
    if trainer is VERL and _part(config, "actor").get("loss_agg_mode") == "token-mean":
        estimator = VERL_KL.get(_part(config, "actor").get("kl_loss_type", ""))
        return {"actor/kl_loss": estimator} if estimator else {}
    return {}


def changed_meanings(
    trainer: Trainer, config: Mapping[str, Any], largest: Mapping[str, float]
) -> dict[str, str]:
    """Return numbers with another meaning in this run, each with that meaning.

    Args:
        trainer: whose they are.
        config: of the run.
        largest: of each number, over the run.
    """
    if trainer is TRL and config.get("scale_rewards") == "batch":
        return {"frac_reward_zero_std": "whether the whole batch earned the same"}
    if trainer is OPENRLHF and "rollout/num_samples" in largest:
        return dict.fromkeys(("reward", "response_length", "truncated"), "those of rollout/ again")
    if trainer is not VERL:
        return {}
    meanings = {}
    if _part(config, "actor").get("loss_agg_mode", "token-mean") != "token-mean":
        meanings["actor/entropy"] = "a sum or mean over sequences, by loss_agg_mode"
    if largest.get("num_turns/max", SINGLE_TURN_COUNT) > SINGLE_TURN_COUNT:
        meanings |= dict.fromkeys(("response_length/mean", "response_length/max"), "with the tokens of tools")
    return meanings


def _is_grpo(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration is a ``GRPOConfig``."""
    return "scale_rewards" in config or config.get("config_class") == "GRPOConfig"


def _is_rloo(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration is an ``RLOOConfig``."""
    return "normalize_advantages" in config or config.get("config_class") == "RLOOConfig"


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of verl's ``actor_rollout_ref``."""
    return config.get("actor_rollout_ref", {}).get(name, {})
