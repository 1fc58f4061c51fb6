"""Computes the metrics of a step from its table, as defined in metrics/definitions.py.

A metric without its input is left out. Shapes: N tokens of all samples, concatenated.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from truing.config import CorrectionConfig
from truing.metrics.context import context_metrics
from truing.metrics.episodes import episode_metrics
from truing.metrics.token_numbers import drop_nan, token_ratio
from truing.ops.correction import correction_weights, effective_share
from truing.ops.kl import kl_k1, kl_k2, kl_k3
from truing.ops.losses import Objective
from truing.ops.ratios import clip_mask
from truing.ops.returns import explained_variance
from truing.types.sample import SampleFacts
from truing.types.status import Status
from truing.types.step_table import StepTable
from truing.types.token import Origin

Metrics = dict[str, float]


def step_metrics(table: StepTable, objective: Objective | None) -> Metrics:
    """Return the metrics that follow from a step's table; ``objective`` is its policy loss, if it has one.

    Log-probabilities and gradients are those of each sample's last pass.
    """
    metrics = (
        reward_metrics(table.samples) | token_metrics(table) | kl_metrics(table) | entropy_metrics(table)
    )
    metrics |= episode_metrics(table) | context_metrics(table.samples) | value_metrics(table)
    if objective is not None:
        metrics |= policy_metrics(table, objective)
    return metrics


def reward_metrics(samples: Sequence[SampleFacts]) -> Metrics:
    """Return rewards, their components and their groups; each rollout counts once."""
    rollouts = {sample.rollout_id: sample for sample in samples}.values()
    graded = [each for each in rollouts if not math.isnan(each.reward)]
    parts, groups = defaultdict(list), defaultdict(list)
    for each in graded:
        groups[each.group_id].append(each.reward)
        for name, value in each.reward_parts.items():
            parts[f"reward_part/{name}"].append(value)
    metrics = _mean_std("reward", torch.tensor([each.reward for each in graded], dtype=torch.float64))
    metrics |= {name: sum(values) / len(values) for name, values in parts.items()}
    if graded:
        metrics["truncated/share"] = _share([each.status == Status.TRUNCATED for each in graded])
    return metrics | _group_metrics([rewards for rewards in groups.values() if len(rewards) > 1])


def token_metrics(table: StepTable) -> Metrics:
    """Return tokens by origin and by use, and lengths of answers."""
    origin_N = table.streams["origin"]
    count = {origin: int((origin_N == origin).sum()) for origin in Origin}
    trained = int(table.trained.sum())
    answer_N = table.sampled | (origin_N == Origin.DEMO)
    lengths = torch.bincount(table.sample_of_token[answer_N], minlength=len(table.samples)).double()
    if table.sampled.any():  # demonstrations in addition to rollouts are not answers
        lengths = lengths[torch.tensor([not _is_bootstrap(table, i) for i in range(len(table.samples))])]
    metrics = {f"tokens/origin_share/{o.name.lower()}": count[o] / len(answer_N) for o in Origin}
    metrics |= {
        "tokens/sampled": float(count[Origin.SAMPLED]),
        "tokens/trained": float(trained),
        "tokens/scored": float((table.trained & ~table.stream("new_logprob").isnan()).sum()),
        "length/mean": float(lengths.mean()),
        "length/max": float(lengths.max()),
    }
    generated = count[Origin.SAMPLED] + count[Origin.FORCED] + count[Origin.DEMO]
    if generated:
        metrics["tokens/learnable_share"] = trained / generated
    return metrics


def _is_bootstrap(table: StepTable, index: int) -> bool:
    """Return whether a sample is a demonstration that is not a rollout of the policy, and has no reward."""
    supervised = bool(table.streams["supervised_mask"][table.part(index)].any())
    return supervised and math.isnan(table.samples[index].reward)


def policy_metrics(table: StepTable, objective: Objective) -> Metrics:
    """Return metrics of advantages, ratios and the clip, over policy tokens."""
    advantage_N = table.stream("advantage")[table.policy]
    (known_N,) = drop_nan(advantage_N)
    metrics = _mean_std("advantage", known_N)
    if len(known_N):
        metrics["advantage/mean_abs"] = float(known_N.abs().mean())
        metrics["advantage/max_abs"] = float(known_N.abs().max())
    ratio_N = token_ratio(table, objective.ratio)[table.policy]
    metrics |= _ratio_metrics(*drop_nan(ratio_N, advantage_N))
    counted_N = ~ratio_N.isnan() | (advantage_N == 0)  # an advantage of 0 has nothing to clip
    return metrics | _clip_metrics(ratio_N[counted_N], advantage_N[counted_N], objective)


def kl_metrics(table: StepTable) -> Metrics:
    """Return the KL to the reference: per token, trained or all, and per sequence."""
    new_N, ref_N = table.stream("new_logprob"), table.stream("ref_logprob")
    compared_N = ~(new_N.isnan() | ref_N.isnan())
    metrics = {}
    for use, mask_N in (("kl_trained", table.policy), ("kl_all", table.sampled)):
        chosen_N = mask_N & compared_N
        if chosen_N.any():
            for name, estimator in (("k1", kl_k1), ("k2", kl_k2), ("k3", kl_k3)):
                metrics[f"{use}/{name}"] = float(estimator(new_N[chosen_N], ref_N[chosen_N]).mean())
    chosen_N = table.sampled & compared_N
    if chosen_N.any():
        k1_N = kl_k1(new_N[chosen_N], ref_N[chosen_N])
        sequences = len(table.sample_of_token[chosen_N].unique())
        metrics["kl_sequence/k1"] = float(k1_N.sum()) / sequences
    return metrics


def value_metrics(table: StepTable) -> Metrics:
    """Return metrics of returns over SAMPLED tokens, and of the critic's prediction."""
    returns_N, value_N = (table.stream(name)[table.sampled] for name in ("returns", "value"))
    metrics = _mean_std("returns", *drop_nan(returns_N))
    returns_N, value_N = drop_nan(returns_N, value_N)
    if not len(value_N):
        return metrics
    metrics["value/mean"] = float(value_N.mean())
    all_1N = torch.ones(1, len(value_N), dtype=torch.bool)
    explained = float(explained_variance(value_N[None], returns_N[None], all_1N))
    return metrics if math.isnan(explained) else metrics | {"value/explained_variance": explained}


def correction_metrics(table: StepTable, cfg: CorrectionConfig) -> Metrics:
    """Return metrics of the off-policy weights before an optimizer step."""
    if cfg.method == "off":
        return {}
    weights, logs = [], []
    for _, sample, part in table.slices():
        if sample.old_source == "recomputed":
            names = ("old_logprob", "sampler_logprob", "policy_mask")
            old_T, sampler_T, mask_T = (table.streams[name][part] for name in names)
            weight_1T = correction_weights(
                old_T[None], sampler_T[None], mask_T[None], cfg.method, cfg.low, cfg.high
            )
            weights.append(weight_1T[0][mask_T])
            logs.append((old_T - sampler_T)[mask_T])
    if not any(map(len, logs)):
        return {}
    weight_N, log_N = torch.cat(weights).double(), torch.cat(logs)
    return {
        "correction/weight_mean": float(weight_N.mean()),
        "correction/dropped_share": _share(weight_N == 0),
        "correction/effective_share": float(effective_share(log_N)),
    }


def mismatch_metrics(table: StepTable) -> Metrics:
    """Return the mismatch of sampler and trainer on SAMPLED tokens, trained or not, with the same weights."""
    sampler_N, new_N = drop_nan(
        *(table.stream(name)[table.sampled] for name in ("sampler_logprob", "new_logprob"))
    )
    if not len(new_N):
        return {}
    return {
        "mismatch/k1": float(kl_k1(sampler_N, new_N).mean()),
        "mismatch/k3": float(kl_k3(sampler_N, new_N).mean()),
        "mismatch/max_abs": float((sampler_N - new_N).abs().max()),
    }


def entropy_metrics(table: StepTable) -> Metrics:
    """Return mean entropies over trained tokens, of the sampling distribution and of the model's own.

    Both use computed samples only; the sampler's log-probabilities estimate the first over all samples.
    """
    chosen_N = table.policy if table.policy.any() else table.trained  # without additional demonstrations
    values = {
        "entropy/mean": table.stream("entropy")[chosen_N],
        "entropy/raw": table.stream("raw_entropy")[chosen_N],
        "entropy/sampled": -table.stream("sampler_logprob")[table.sampled],
    }
    known_values = {name: drop_nan(value_N)[0] for name, value_N in values.items()}
    return {name: float(value_N.mean()) for name, value_N in known_values.items() if len(value_N)}


def _ratio_metrics(ratio_N: Tensor, advantage_N: Tensor) -> Metrics:
    if not len(ratio_N):
        return {}
    quantiles = ratio_N.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=ratio_N.dtype)).tolist()
    metrics = dict(zip(("ratio/p10", "ratio/p50", "ratio/p90"), quantiles, strict=True))
    metrics |= {"ratio/min": float(ratio_N.min()), "ratio/max": float(ratio_N.max())}
    for sign, chosen_N in (("positive", advantage_N > 0), ("negative", advantage_N < 0)):
        if chosen_N.any():
            metrics[f"ratio/mean_{sign}_advantage"] = float(ratio_N[chosen_N].mean())
    return metrics | _mean_std("ratio", ratio_N)


def _clip_metrics(ratio_N: Tensor, advantage_N: Tensor, objective: Objective) -> Metrics:
    (known_N,) = drop_nan(ratio_N)
    if not len(known_N) or objective.surrogate == "reinforce":
        return {}
    if objective.surrogate == "cispo":
        return {"clip/capped_share": _share(ratio_N > objective.max_ratio)}
    low, high = objective.clip_low, objective.clip_high
    clipped_N = clip_mask(ratio_N, advantage_N, low, high)
    return {
        "clip/active_share": _share((advantage_N != 0) & ~clipped_N),
        "clip/active_positive_share": _share((advantage_N > 0) & ~clipped_N),
        "clip/active_negative_share": _share((advantage_N < 0) & ~clipped_N),
        "clip/clipped_share": _share(clipped_N),
        "clip/high_share": _share(clipped_N & (advantage_N > 0)),
        "clip/low_share": _share(clipped_N & (advantage_N < 0)),
        "clip/in_band_share": _share((known_N >= 1 - low) & (known_N <= 1 + high)),
    }


def _group_metrics(groups: Sequence[Sequence[float]]) -> Metrics:
    if not groups:
        return {}
    equal = [min(rewards) == max(rewards) for rewards in groups]
    return {
        "group/zero_variance_share": _share(equal),
        "group/all_right_share": _share([e and r[0] >= 1 for e, r in zip(equal, groups, strict=True)]),
        "group/all_wrong_share": _share([e and r[0] <= 0 for e, r in zip(equal, groups, strict=True)]),
    }


def _mean_std(name: str, values_N: Tensor) -> Metrics:
    """Return the mean of one number or more, and the sample standard deviation of two or more."""
    metrics = {f"{name}/mean": float(values_N.mean())} if len(values_N) else {}
    return metrics | ({f"{name}/std": float(values_N.std())} if len(values_N) > 1 else {})


def _share(matches: Sequence[bool] | Tensor) -> float:
    """Return the fraction of true entries, of at least one entry."""
    return float(torch.as_tensor(matches).double().mean())
