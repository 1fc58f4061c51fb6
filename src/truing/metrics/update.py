"""Computes the metrics of an update from its rows, as defined in metrics/definitions.py.

A metric without its input is left out. Shapes: N tokens of all rows, concatenated.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from truing.config import CorrectionConfig
from truing.metrics.context import context_metrics
from truing.metrics.episodes import episode_metrics
from truing.metrics.token_streams import TokenStreams, drop_nan
from truing.ops.correction import correction_weights, effective_share
from truing.ops.kl import kl_k1, kl_k2, kl_k3
from truing.ops.losses import Objective
from truing.ops.ratios import clip_mask
from truing.ops.returns import explained_variance
from truing.record.rows import SampleRow
from truing.types.sample import Sample
from truing.types.status import Status
from truing.types.token import Origin

Metrics = dict[str, float]


def step_metrics(tokens: TokenStreams, objective: Objective | None, *, first_inner: bool) -> Metrics:
    """Return all metrics of an update that follow from its rows.

    Args:
        tokens: of the samples of the update, at least one, with the results of its forward pass.
        objective: the policy loss; None where there is none.
        first_inner: whether the weights of the forward pass are those that sampled the rows.
    """
    metrics = (
        reward_metrics(tokens.rows) | token_metrics(tokens) | kl_metrics(tokens) | entropy_metrics(tokens)
    )
    metrics |= episode_metrics(tokens.rows) | context_metrics(tokens.rows) | value_metrics(tokens)
    if objective is not None:
        metrics |= policy_metrics(tokens, objective)
    if first_inner:
        metrics |= mismatch_metrics(tokens)
    return metrics


def reward_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """Return rewards, their components and their groups; each rollout counts once."""
    rollouts = {row.sample.rollout_id: row for row in rows}.values()
    graded = [row for row in rollouts if not math.isnan(row.sample.reward)]
    parts, groups = defaultdict(list), defaultdict(list)
    for row in graded:
        groups[row.sample.group_id].append(row.sample.reward)
        for name, value in row.reward_parts.items():
            parts[f"reward_part/{name}"].append(value)
    metrics = _mean_std("reward", torch.tensor([row.sample.reward for row in graded], dtype=torch.float64))
    metrics |= {name: sum(values) / len(values) for name, values in parts.items()}
    if graded:
        metrics["truncated/share"] = _share([row.status == Status.TRUNCATED for row in graded])
    return metrics | _group_metrics([rewards for rewards in groups.values() if len(rewards) > 1])


def token_metrics(tokens: TokenStreams) -> Metrics:
    """Return tokens by origin and by use, and lengths of answers."""
    count = {origin: int((tokens.origin == origin).sum()) for origin in Origin}
    trained = int(tokens.trained.sum())
    answer_N = tokens.sampled | (tokens.origin == Origin.DEMO)
    lengths = torch.bincount(tokens.row_index[answer_N], minlength=len(tokens.rows)).double()
    if tokens.sampled.any():  # demonstrations in addition to rollouts are not answers
        lengths = lengths[torch.tensor([not _is_bootstrap_demonstration(row.sample) for row in tokens.rows])]
    metrics = {f"tokens/origin_share/{o.name.lower()}": count[o] / len(answer_N) for o in Origin}
    metrics |= {
        "tokens/sampled": float(count[Origin.SAMPLED]),
        "tokens/trained": float(trained),
        "tokens/scored": float((tokens.trained & ~tokens.stream("new_logprob").isnan()).sum()),
        "length/mean": float(lengths.mean()),
        "length/max": float(lengths.max()),
    }
    generated = count[Origin.SAMPLED] + count[Origin.FORCED] + count[Origin.DEMO]
    if generated:
        metrics["tokens/learnable_share"] = trained / generated
    return metrics


def _is_bootstrap_demonstration(sample: Sample) -> bool:
    """Whether a sample is a demonstration that is not a rollout of the policy, and has no reward."""
    return bool(sample.supervised_mask.any()) and math.isnan(sample.reward)


def policy_metrics(tokens: TokenStreams, objective: Objective) -> Metrics:
    """Return metrics of advantages, ratios and the clip, over policy tokens."""
    advantage_N = tokens.stream("advantage")[tokens.policy]
    (known_N,) = drop_nan(advantage_N)
    metrics = _mean_std("advantage", known_N)
    if len(known_N):
        metrics["advantage/mean_abs"] = float(known_N.abs().mean())
        metrics["advantage/max_abs"] = float(known_N.abs().max())
    ratio_N = tokens.ratio(objective.ratio)[tokens.policy]
    metrics |= _ratio_metrics(*drop_nan(ratio_N, advantage_N))
    counted_N = ~ratio_N.isnan() | (advantage_N == 0)  # an advantage of 0 has nothing to clip
    return metrics | _clip_metrics(ratio_N[counted_N], advantage_N[counted_N], objective)


def kl_metrics(tokens: TokenStreams) -> Metrics:
    """Return the KL to the reference: per token, trained or all, and per sequence."""
    new_N, ref_N = tokens.stream("new_logprob"), tokens.stream("ref_logprob")
    compared_N = ~(new_N.isnan() | ref_N.isnan())
    metrics = {}
    for use, mask_N in (("kl_trained", tokens.policy), ("kl_all", tokens.sampled)):
        chosen_N = mask_N & compared_N
        if chosen_N.any():
            for name, estimator in (("k1", kl_k1), ("k2", kl_k2), ("k3", kl_k3)):
                metrics[f"{use}/{name}"] = float(estimator(new_N[chosen_N], ref_N[chosen_N]).mean())
    chosen_N = tokens.sampled & compared_N
    if chosen_N.any():
        k1_N = kl_k1(new_N[chosen_N], ref_N[chosen_N])
        sequences = len(tokens.row_index[chosen_N].unique())
        metrics["kl_sequence/k1"] = float(k1_N.sum()) / sequences
    return metrics


def value_metrics(tokens: TokenStreams) -> Metrics:
    """Return metrics of returns over SAMPLED tokens, and of the critic's prediction."""
    returns_N, value_N = (tokens.stream(name)[tokens.sampled] for name in ("returns", "value"))
    metrics = _mean_std("returns", *drop_nan(returns_N))
    returns_N, value_N = drop_nan(returns_N, value_N)
    if not len(value_N):
        return metrics
    metrics["value/mean"] = float(value_N.mean())
    all_1N = torch.ones(1, len(value_N), dtype=torch.bool)
    explained = float(explained_variance(value_N[None], returns_N[None], all_1N))
    return metrics if math.isnan(explained) else metrics | {"value/explained_variance": explained}


def correction_metrics(tokens: TokenStreams, cfg: CorrectionConfig) -> Metrics:
    """Return metrics of the off-policy weights before an update."""
    if cfg.method == "off":
        return {}
    weights, logs = [], []
    for sample in [row.sample for row in tokens.rows if row.sample.old_source == "recomputed"]:
        streams = (sample.old_logprob[None], sample.sampler_logprob[None], sample.policy_mask[None])
        weights.append(correction_weights(*streams, cfg.method, cfg.low, cfg.high)[0][sample.policy_mask])
        logs.append((sample.old_logprob - sample.sampler_logprob)[sample.policy_mask])
    if not any(map(len, logs)):
        return {}
    weight_N, log_N = torch.cat(weights).double(), torch.cat(logs)
    return {
        "correction/weight_mean": float(weight_N.mean()),
        "correction/dropped_share": _share(weight_N == 0),
        "correction/effective_share": float(effective_share(log_N)),
    }


def mismatch_metrics(tokens: TokenStreams) -> Metrics:
    """Return the mismatch of sampler and trainer on SAMPLED tokens, trained or not, with the same weights."""
    sampler_N, new_N = drop_nan(
        *(tokens.stream(name)[tokens.sampled] for name in ("sampler_logprob", "new_logprob"))
    )
    if not len(new_N):
        return {}
    return {
        "mismatch/k1": float(kl_k1(sampler_N, new_N).mean()),
        "mismatch/k3": float(kl_k3(sampler_N, new_N).mean()),
        "mismatch/max_abs": float((sampler_N - new_N).abs().max()),
    }


def entropy_metrics(tokens: TokenStreams) -> Metrics:
    """Return mean entropies over trained tokens, of the sampling distribution and of the model's own.

    Both use computed samples only; the sampler's log-probabilities estimate the first over all samples.
    """
    chosen_N = tokens.policy if tokens.policy.any() else tokens.trained  # without additional demonstrations
    values = {
        "entropy/mean": tokens.stream("entropy")[chosen_N],
        "entropy/raw": tokens.stream("raw_entropy")[chosen_N],
        "entropy/sampled": -tokens.stream("sampler_logprob")[tokens.sampled],
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
