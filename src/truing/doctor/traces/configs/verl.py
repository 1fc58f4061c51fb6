"""verl's configuration (0.9.1), as Hydra writes it to ``.hydra/config.yaml``.

https://github.com/verl-project/verl
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

TRAINER = "verl"
KEYS = ("actor_rollout_ref", "algorithm", "data")

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

EPS = 1e-6
"""Added to the deviation in `compute_grpo_outcome_advantage`, which no key sets."""

KL_ESTIMATORS = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}

LOSSES: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {"surrogate": "clip", "ratio": "token"},
    "gspo": {"surrogate": "clip", "ratio": "sequence", "aggregation": "seq-mean-token-mean"},
}

TRUNCATED = {
    "top_k": (None, 0, -1),
    "top_p": (None, 1, 1.0),
    "repetition_penalty": (None, 1, 1.0),
}
"""Sampling settings that the trained log-probabilities leave out, with the values that change nothing."""


def settings(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings in the words of a trace; ``get`` returns the value at a dotted key, or None."""
    return {
        **_advantage(get),
        **_loss(get),
        **_kl(get),
        **_correction(get),
        "mask": "sampled",
        "group_size": get(f"{ROLLOUT}.n"),
        "inner_steps": _optimizer_steps(get),
        "on_policy": _is_on_policy(get),
        "entropy_coef": get(f"{ACTOR}.entropy_coeff"),
        "truncated": "keep",
        "reference_moves": False,
        "max_new_tokens": get("data.max_response_length"),
        "left_out": tuple(
            f"{name}={value}"
            for name, off in TRUNCATED.items()
            if (value := get(f"{ROLLOUT}.{name}")) not in off
        ),
        "learning_rate": get(f"{ACTOR}.optim.lr"),
        "max_grad_norm": get(f"{ACTOR}.grad_clip"),
    }


def _advantage(get: Callable[[str], Any]) -> dict[str, Any]:
    estimator = get("algorithm.adv_estimator")
    match estimator:
        case "grpo" | "grpo_vectorized":
            scaled = get("algorithm.norm_adv_by_std_in_grpo")
            named = {"advantage": None if scaled is None else "group" if scaled else "none"}
            return {"algo": "grpo", "advantage_eps": EPS, **named}
        case "rloo" | "rloo_vectorized":
            return {"algo": "rloo", "advantage": "loo", "advantage_eps": 0.0}
        case "gae":
            discount = {"gamma": get("algorithm.gamma"), "lam": get("algorithm.lam")}
            return {"algo": "ppo", "advantage": "other: gae, whitened", **discount}
        case None:
            return {}
        case _:
            return {"algo": "reinforce", "advantage": f"other: {estimator}"}


def _loss(get: Callable[[str], Any]) -> dict[str, Any]:
    mode = get(f"{ACTOR}.policy_loss.loss_mode")
    named: Mapping[str, Any] = {} if mode is None else LOSSES.get(mode, {"surrogate": f"other: {mode}"})
    aggregation = named.get("aggregation", get(f"{ACTOR}.loss_agg_mode"))
    if aggregation == "seq-mean-token-sum-norm":  # divided by the width of a padded batch, or a factor
        aggregation = f"other: {aggregation}"
    either = get(f"{ACTOR}.clip_ratio")
    low, high = (get(f"{ACTOR}.clip_ratio_{side}") for side in ("low", "high"))
    more = ("distillation.enabled", "algorithm.use_pf_ppo")
    needed = (f"{ACTOR}.clip_ratio_c", "algorithm.rollout_correction")  # older releases have other defaults
    is_known = mode in LOSSES and None not in map(get, needed)
    return {
        **named,
        "aggregation": aggregation,
        "clip_low": either if low is None else low,
        "clip_high": either if high is None else high,
        "dual_clip": get(f"{ACTOR}.clip_ratio_c") if mode == "vanilla" else None,
        "plain": True if is_known and not any(get(each) for each in more) else None,
    }


def _kl(get: Callable[[str], Any]) -> dict[str, Any]:
    in_reward, in_loss = get("algorithm.use_kl_in_reward"), get(f"{ACTOR}.use_kl_loss")
    if in_reward is None or in_loss is None:
        return {}
    if in_reward and in_loss:
        return {"kl_coef": "other: in the reward and in the loss"}
    if not in_reward and not in_loss:
        return {"kl_coef": 0.0}
    kind = get("algorithm.kl_penalty" if in_reward else f"{ACTOR}.kl_loss_type")
    adapts = in_reward and get("algorithm.kl_ctrl.type") != "fixed"
    coefficient = get("algorithm.kl_ctrl.kl_coef" if in_reward else f"{ACTOR}.kl_loss_coef")
    return {
        "kl_where": "reward" if in_reward else "loss",
        "kl_coef": "other: adaptive" if adapts else coefficient,
        "kl_estimator": KL_ESTIMATORS.get(kind, f"other: {kind}"),
        "kl_weight": "none",
    }


def _correction(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the correction between sampler and trainer: ``rollout_is`` weighs by old ÷ sampler."""
    where = "algorithm.rollout_correction"
    level, most = get(f"{where}.rollout_is"), get(f"{where}.rollout_is_threshold")
    if get(where) is None:
        return {}
    others = {name: get(f"{where}.{name}") for name in ("rollout_rs", "rollout_is_batch_normalize")}
    if get(f"{where}.bypass_mode") and get(f"{where}.loss_type") != "ppo_clip":
        return {"correction": "other: bypass_mode", "surrogate": f"other: {get(f'{where}.loss_type')}"}
    if named := [name for name, value in others.items() if value]:
        return {"correction": f"other: {', '.join(named)}"}
    if level is None:
        return {"correction": "off"}
    low, _, high = f"{most}".partition("_")  # "0.5_5.0" leaves out what lies outside
    method = (
        ("mask" if high else "truncate") if level == "token" else f"sequence_{'mask' if high else 'truncate'}"
    )
    bounds = (
        {"correction_low": float(low), "correction_high": float(high)}
        if high
        else {"correction_high": float(low)}
    )
    return {"correction": method, **bounds}


def _is_on_policy(get: Callable[[str], Any]) -> bool | None:
    """Return whether the weights that sample are those that train first, and no correction says otherwise."""
    mode, level = get("trainer.v1.trainer_mode"), get("algorithm.rollout_correction.rollout_is")
    return None if mode is None else mode == "sync" and level is None


def _optimizer_steps(get: Callable[[str], Any]) -> int | None:
    """Return the optimizer steps of a step: minibatches are counted in prompts, as batches are."""
    batch, minibatch = get("data.train_batch_size"), get(f"{ACTOR}.ppo_mini_batch_size")
    epochs = get(f"{ACTOR}.ppo_epochs")
    return None if None in (batch, minibatch, epochs) else epochs * math.ceil(batch / minibatch)
