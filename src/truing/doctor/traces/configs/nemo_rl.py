"""NeMo-RL's configuration, a YAML file: https://github.com/NVIDIA-NeMo/RL (7ea279abf)."""

import math
from collections.abc import Callable
from typing import Any

TRAINER = "NeMo-RL"
KEYS = ("grpo", "loss_fn", "policy")

EPS = 1e-6
"""Added to the deviation in `GRPOAdvantageEstimator`, which no key sets."""

RESHAPES = (
    *("reward_shaping.enabled", "reward_scaling.enabled", "advantage_clip_low", "advantage_clip_high"),
    *("invalid_tool_call_advantage", "malformed_thinking_advantage"),
)
"""Keys with which an advantage does not follow from the recorded rewards alone."""

NEEDED = ("ratio_clip_min", "ratio_clip_max", "disable_ppo_ratio", "use_importance_sampling_correction")
"""Keys of a loss without which its formula is not known."""

CORRECTIONS = {"tis": "truncate", "icepop": "mask"}


def settings(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings in the words of a trace; ``get`` returns the value at a dotted key, or None."""
    asynchronous = get("grpo.async_grpo.enabled")
    corrected = get("loss_fn.use_importance_sampling_correction")
    return {
        **_advantage(get),
        **_loss(get),
        **_kl(get),
        **_correction(get),
        "algo": "grpo",
        "mask": "sampled",
        "group_size": get("grpo.num_generations_per_prompt"),
        "inner_steps": _optimizer_steps(get),
        "on_policy": None if asynchronous is None else not asynchronous and not corrected,
        "entropy_coef": 0.0,
        "truncated": None
        if (filters := get("grpo.overlong_filtering")) is None
        else "mask"
        if filters
        else "keep",
        "reference_moves": False,
        "max_grad_norm": get("policy.max_grad_norm"),
        "learning_rate": get("policy.optimizer.kwargs.lr"),
    }


def _advantage(get: Callable[[str], Any]) -> dict[str, Any]:
    name = get("grpo.adv_estimator.name")
    keys = ("normalize_rewards", "use_leave_one_out_baseline")
    scaled, left_out = (
        get(f"grpo.adv_estimator.{key}" if name is not None else f"grpo.{key}") for key in keys
    )
    shaped = [key for key in RESHAPES if get(f"grpo.{key}") not in (None, False)]
    if name not in (None, "grpo") or shaped:
        return {"advantage": f"other: {', '.join(shaped) or name}"}
    if scaled is None or left_out is None:
        return {}
    formula = ("loo_scaled" if scaled else "loo") if left_out else ("group" if scaled else "none")
    return {"advantage": formula, "advantage_eps": EPS if scaled else 0.0}


def _loss(get: Callable[[str], Any]) -> dict[str, Any]:
    by_token = get("loss_fn.token_level_loss")
    by_row = get("loss_fn.sequence_level_importance_ratios")
    known: dict[str, Any] = {
        "aggregation": None if by_token is None else "token_mean" if by_token else "sequence_mean",
        "ratio": None if by_row is None else "sequence" if by_row else "token",
    }
    odd = [
        key
        for key in ("disable_ppo_ratio", "force_on_policy_ratio", "positive_example_nll_weight")
        if get(f"loss_fn.{key}")
    ]
    low, high = get("loss_fn.ratio_clip_min"), get("loss_fn.ratio_clip_max")
    if odd:
        return known | {"surrogate": f"other: {', '.join(odd)}"}
    if get("loss_fn.use_cispo"):
        return known | {"surrogate": "other: cispo with two bounds", "clip_low": low, "clip_high": high}
    if any(get(f"loss_fn.{key}") is None for key in NEEDED):
        return known
    return known | {
        "surrogate": "clip",
        "clip_low": low,
        "clip_high": high,
        "dual_clip": get("loss_fn.ratio_clip_c"),
        "plain": None if get("loss_fn.seq_logprob_error_threshold") else True,
    }


def _kl(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the KL; its weight is 1 with the gradient of a ratio."""
    coefficient, in_reward = get("loss_fn.reference_policy_kl_penalty"), get("loss_fn.use_kl_in_reward")
    if not coefficient:
        return {"kl_coef": coefficient}
    from_sampler = get("loss_fn.use_on_policy_kl_approximation")
    return {
        "kl_coef": coefficient,
        "kl_where": "reward" if in_reward else "loss",
        "kl_estimator": get("loss_fn.reference_policy_kl_type"),
        "kl_weight": "other: θ over the sampler" if from_sampler else "score",
    }


def _correction(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the correction by old ÷ sampler; without truncation all of it counts."""
    if not (on := get("loss_fn.use_importance_sampling_correction")):
        return {} if on is None else {"correction": "off"}
    kind = get("loss_fn.truncated_importance_sampling_type")
    low, high = (get(f"loss_fn.truncated_importance_sampling_ratio{end}") for end in ("_min", ""))
    by_row = get("loss_fn.sequence_level_importance_ratios")
    if kind not in (None, *CORRECTIONS) or (kind == "tis" and low):
        return {"correction": f"other: {kind}"}
    method = "truncate" if kind is None else CORRECTIONS[kind]
    return {
        "correction": f"sequence_{method}" if by_row else method,
        "correction_low": low if method == "mask" else None,
        "correction_high": high,
    }


def _optimizer_steps(get: Callable[[str], Any]) -> int | None:
    """Return the optimizer steps of a step: batches are counted in rows."""
    prompts, group = get("grpo.num_prompts_per_step"), get("grpo.num_generations_per_prompt")
    batch = get("policy.train_global_batch_size")
    return None if None in (prompts, group, batch) else math.ceil(prompts * group / batch)
