"""The numbers of an update, from its rows alone; names and formulas are those of record/keys.py.

A metric whose input is absent is left out. Shapes: N tokens of all rows, one after the other.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from truing.ops.kl import kl_k1, kl_k2, kl_k3
from truing.ops.losses import Objective
from truing.ops.ratios import clip_mask, importance_ratio, log_ratio
from truing.outcomes import Status
from truing.record.rows import SampleRow
from truing.training.episode_metrics import episode_metrics
from truing.types import Origin

Metrics = dict[str, float]
Stream = Callable[[SampleRow], Tensor]  # a row's numbers or mask, [T]


def step_metrics(rows: Sequence[SampleRow], objective: Objective | None, *, first_inner: bool) -> Metrics:
    """Everything that the rows of an update say.

    Args:
        rows: the samples of the update, at least one, with what its forward said of them.
        objective: the policy loss; None where there is none.
        first_inner: whether the weights of the forward are those that drew the rows.
    """
    metrics = reward_metrics(rows) | token_metrics(rows) | kl_metrics(rows) | entropy_metrics(rows)
    metrics |= episode_metrics(rows)
    if objective is not None:
        metrics |= policy_metrics(rows, objective)
    if first_inner:
        metrics |= mismatch_metrics(rows)
    return metrics


def reward_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """Rewards, their components and their groups: one vote per rollout, not per sample."""
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


def token_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """What the tokens are, by origin and by use, and how long the answers."""
    origin_N = torch.cat([row.sample.origin for row in rows])
    count = {origin: int((origin_N == origin).sum()) for origin in Origin}
    trained = sum(int(is_trained(row).sum()) for row in rows)
    scored = sum(int((is_trained(row) & ~row.new_logprob.isnan()).sum()) for row in rows)
    lengths = [int((is_sampled(row) | (row.sample.origin == Origin.DEMO)).sum()) for row in rows]
    metrics = {f"tokens/origin_share/{o.name.lower()}": count[o] / len(origin_N) for o in Origin}
    metrics |= {
        "tokens/sampled": float(count[Origin.SAMPLED]),
        "tokens/trained": float(trained),
        "tokens/scored": float(scored),
        "length/mean": sum(lengths) / len(lengths),
        "length/max": float(max(lengths)),
    }
    written = count[Origin.SAMPLED] + count[Origin.FORCED] + count[Origin.DEMO]
    if written:
        metrics["tokens/learnable_share"] = trained / written
    return metrics


def policy_metrics(rows: Sequence[SampleRow], objective: Objective) -> Metrics:
    """Advantages, ratios, and what the clip does to them, over policy tokens."""
    advantage_N = gather(rows, lambda row: row.sample.advantage, in_policy)
    (credited_N,) = known(advantage_N)
    metrics = _mean_std("advantage", credited_N)
    if len(credited_N):
        metrics["advantage/max_abs"] = float(credited_N.abs().max())
    ratio_N = ratios(rows, objective)
    metrics |= _ratio_metrics(*known(ratio_N, advantage_N))
    counted_N = ~ratio_N.isnan() | (advantage_N == 0)  # without an advantage there is nothing to clip
    return metrics | _clip_metrics(ratio_N[counted_N], advantage_N[counted_N], objective)


def kl_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """Distance from the reference: per token, trained or all, and per sequence."""
    metrics = {}
    for use, mask in (("kl_trained", in_policy), ("kl_all", is_sampled)):
        new_N, ref_N = known(gather(rows, new_logprob, mask), gather(rows, ref_logprob, mask))
        if len(new_N):
            for name, estimator in (("k1", kl_k1), ("k2", kl_k2), ("k3", kl_k3)):
                metrics[f"{use}/{name}"] = float(estimator(new_N, ref_N).mean())
    sums = []
    for row in rows:
        new_T, ref_T = known(gather([row], new_logprob, is_sampled), gather([row], ref_logprob, is_sampled))
        sums += [float(kl_k1(new_T, ref_T).sum())] if len(new_T) else []
    return metrics | ({"kl_sequence/k1": sum(sums) / len(sums)} if sums else {})


def mismatch_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """How far sampler and trainer disagree on drawn tokens, trained or not, under the same weights."""
    sampler_N, new_N = known(
        gather(rows, lambda row: row.sample.sampler_logprob, is_sampled),
        gather(rows, new_logprob, is_sampled),
    )
    if not len(new_N):
        return {}
    return {
        "mismatch/k1": float(kl_k1(sampler_N, new_N).mean()),
        "mismatch/k3": float(kl_k3(sampler_N, new_N).mean()),
        "mismatch/max_abs": float((sampler_N - new_N).abs().max()),
    }


def entropy_metrics(rows: Sequence[SampleRow]) -> Metrics:
    """Mean entropy over trained tokens, of what was drawn from and of the model's own output.

    Both are of computed samples alone; what the sampler said of its draws estimates the first over all.
    """
    streams = {"contract": lambda row: row.entropy, "raw": lambda row: row.raw_entropy}
    metrics = {}
    for name, stream in streams.items():
        (value_N,) = known(gather(rows, stream, is_trained))
        if len(value_N):
            metrics[f"entropy/{name}"] = float(value_N.mean())
    (drawn_N,) = known(gather(rows, lambda row: row.sample.sampler_logprob, is_sampled))
    return metrics | ({"entropy/drawn": -float(drawn_N.mean())} if len(drawn_N) else {})


def alignment(drawn: Sequence[Tensor], scored: Sequence[Tensor]) -> Metrics:
    """Share of ids that the trainer scored as they were drawn; [L] int64 per turn, in the same order."""
    pairs = list(zip(drawn, scored, strict=True))
    positions = sum(max(len(a), len(b)) for a, b in pairs)
    equal = sum(x == y for a, b in pairs for x, y in zip(a.tolist(), b.tolist(), strict=False))
    return {"alignment": equal / positions} if positions else {}


def new_logprob(row: SampleRow) -> Tensor:
    """What the trainer said of each token, [T]."""
    return row.new_logprob


def ref_logprob(row: SampleRow) -> Tensor:
    """What the reference said of each token, [T]."""
    return row.sample.ref_logprob


def in_policy(row: SampleRow) -> Tensor:
    """Tokens under the policy term, [T] bool."""
    return row.sample.policy_mask


def is_sampled(row: SampleRow) -> Tensor:
    """Tokens that the policy chose, [T] bool."""
    return row.sample.origin == Origin.SAMPLED


def is_trained(row: SampleRow) -> Tensor:
    """Tokens under the policy or the supervised term, [T] bool."""
    return row.sample.policy_mask | row.sample.supervised_mask


def gather(rows: Sequence[SampleRow], stream: Stream, mask: Stream) -> Tensor:
    """The masked numbers of all rows, [N] float64, NaN where not recorded."""
    return torch.cat([stream(row)[mask(row)] for row in rows]).double()


def known(*streams_N: Tensor) -> tuple[Tensor, ...]:
    """The tokens of which every stream [N] has a number."""
    absent_N = torch.stack(streams_N).isnan().any(dim=0)
    return tuple(stream_N[~absent_N] for stream_N in streams_N)


def ratios(rows: Sequence[SampleRow], objective: Objective) -> Tensor:
    """Importance ratio of each policy token, or of its sequence: [N] float64, NaN where not scored."""
    per_row = []
    for row in rows:
        log_ratio_T = log_ratio(row.new_logprob.double(), row.sample.old_logprob.double())
        mask_T = row.sample.policy_mask & ~log_ratio_T.isnan()
        ratio_T = importance_ratio(log_ratio_T[None], mask_T[None], objective.ratio)[0]
        per_row.append(ratio_T.masked_fill(~mask_T, math.nan)[row.sample.policy_mask])
    return torch.cat(per_row)


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
    (known_N,) = known(ratio_N)
    if not len(known_N):
        return {}
    if objective.surrogate == "cispo":
        return {"clip/capped_share": _share(known_N > objective.max_ratio)}
    low, high = objective.clip_low, objective.clip_high
    clipped_N = clip_mask(ratio_N, advantage_N, low, high)
    return {
        "clip/active_share": _share((advantage_N != 0) & ~clipped_N),
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
    """Mean where there is one number, sample standard deviation where there are two."""
    metrics = {f"{name}/mean": float(values_N.mean())} if len(values_N) else {}
    return metrics | ({f"{name}/std": float(values_N.std())} if len(values_N) > 1 else {})


def _share(hits: Sequence[bool] | Tensor) -> float:
    """Fraction of true entries; there is at least one entry."""
    return float(torch.as_tensor(hits).double().mean())
