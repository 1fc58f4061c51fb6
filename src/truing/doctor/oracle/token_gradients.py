"""The token gradients of the declared loss in closed form: −∂loss/∂log-probability of each token.

    gradient_t = −∂L/∂log π_t = c_t · r_t A_t [not clipped] − β c′_t r_t k′(log π_t − log π_ref,t) + w s_t / S

c_t is the aggregation's weight of a token, k′ is 1 (k1), x (k2) or 1 − e^{−x} (k3), s_t is 1 on
demonstrated tokens. On-policy r = 1, so this is the score function's weight A_t · c_t: mask, sign, clip,
denominators and aggregation are all in it, and the model is not.
"""

import math

import torch
from torch import Tensor

from truing.doctor.evidence import Setup, Step
from truing.doctor.oracle.kl import kl_estimates
from truing.doctor.oracle.policy_weight import (
    BOUND_TOLERANCE,
    MOST_NATS,
    near,
    near_weight_bound,
    per_row,
    policy_weight,
    stream,
)


def expected_token_gradients(step: Step) -> Tensor:
    """Return the token gradients of the recorded streams, [N] float64; 0 outside the loss."""
    token_gradient_N = torch.zeros(len(step.sample_of_token), dtype=torch.float64)
    inner = step.optimizer_step_of_sample[step.sample_of_token]
    for number in inner[inner >= 0].unique().tolist():
        token_gradient_N = torch.where(
            inner == number, _of_minibatch(step, inner == number), token_gradient_N
        )
    return token_gradient_N


def near_bound(step: Step) -> Tensor:
    """Return tokens with a ratio within rounding of a bound: [N] bool."""
    setup, mask_N = step.setup, stream(step, "policy_mask").bool()
    moved_N = torch.where(mask_N, stream(step, "new_logprob") - stream(step, "old_logprob"), 0.0)
    low, high = setup.clip_low, setup.clip_high
    clip = [None if low is None else 1 - low, None if high is None else 1 + high]
    clip += [setup.max_ratio, setup.dual_clip]
    near_N = near(moved_N, clip) | near_weight_bound(step, mask_N)
    if setup.ratio in ("sequence", "product"):
        of_row_B = per_row(step, moved_N)
        count_B = per_row(step, mask_N).clamp(min=1) if setup.ratio == "sequence" else 1.0
        near_N |= near((of_row_B / count_B)[step.sample_of_token], clip)
    return near_N


def kl_rounding(step: Step) -> float:
    """Return by how much float32 moves the token gradients of the KL term, which are near 0 at the reference.

    Automatic differentiation takes the slope of k3 from 1 − e^{−x}, whose last digit is that of 1.
    """
    setup = step.setup
    if not (setup.kl_coef or 0) > 0 or setup.kl_where != "loss" or "kl_mask" not in step.tokens:
        return 0.0
    drawn_N = (step.optimizer_step_of_sample >= 0)[step.sample_of_token] & ~demonstrated(step)
    mask_N = step.tokens["kl_mask"].bool() & drawn_N
    if not mask_N.any():
        return 0.0
    weight = step.metrics.get("weight/kl", setup.kl_coef or 0.0)
    return (
        4 * torch.finfo(torch.float32).eps * weight * float(aggregation_weight(step, mask_N, drawn_N).max())
    )


def expected_entropy_gradients(step: Step) -> Tensor:
    """Return −∂L/∂H_t from the entropy bonus, [N] float64: the weight of the bonus times the token's."""
    weight = step.metrics.get("weight/entropy", step.setup.entropy_coef or 0.0)
    gradient_N = torch.zeros(len(step.sample_of_token), dtype=torch.float64)
    inner_N = step.optimizer_step_of_sample[step.sample_of_token]
    for number in inner_N[inner_N >= 0].unique().tolist() if weight else ():
        here_N = inner_N == number
        mask_N = stream(step, "policy_mask").bool() & here_N
        if mask_N.any():
            gradient_N += weight * aggregation_weight(step, mask_N, here_N & ~demonstrated(step))
    return gradient_N


def expected_value_gradients(
    value_N: Tensor, old_N: Tensor, returns_N: Tensor, mask_N: Tensor, coefficient: float, clip: float | None
) -> Tensor:
    """Return −∂L/∂V over the tokens of a minibatch: [N] float64, reward units ÷ tokens; NaN near a bound.

    L = c · mean ½ max((V − R)², (clip(V, V_old ± ε) − R)²), without a clip c · mean ½ (V − R)². Where the
    clipped error is the larger one, V has no gradient (https://arxiv.org/abs/2005.12729).
    """
    error_N = torch.where(mask_N, value_N - returns_N, 0.0).double()
    gradient_N = -coefficient * error_N / mask_N.sum().clamp(min=1)
    if clip is None:
        return gradient_N
    moved_N = torch.where(mask_N, value_N - old_N, 0.0).double()
    clipped_N = error_N - moved_N + moved_N.clamp(-clip, clip)
    beyond_N, larger_N = moved_N.abs() - clip, clipped_N.abs() - error_N.abs()
    near_N = (beyond_N.abs() < BOUND_TOLERANCE) | ((beyond_N > 0) & (larger_N.abs() < BOUND_TOLERANCE))
    gradient_N = gradient_N.masked_fill((beyond_N > 0) & (larger_N > 0), 0.0)
    return gradient_N.masked_fill(near_N, math.nan)


def _of_minibatch(step: Step, here_N: Tensor) -> Tensor:
    """Return the token gradients of one minibatch; other entries are meaningless."""
    demonstrated_N, demo_N = stream(step, "supervised_mask").bool() & here_N, demonstrated(step)
    token_gradient_N = _policy(step, stream(step, "policy_mask").bool() & here_N, here_N & ~demo_N)
    if step.setup.kl_coef and step.setup.kl_where == "loss" and step.has("ref_logprob"):
        token_gradient_N = token_gradient_N + _kl(step, here_N & ~demo_N)
    if demonstrated_N.any():
        weight = step.metrics.get("weight/supervised", 1.0)
        share_N = weight * demonstrated_N.double() / _tokens(step, demonstrated_N)
        if (
            step.setup.surrogate == "dft"
        ):  # each token by its own probability: https://arxiv.org/abs/2508.05629
            share_N = share_N * torch.where(demonstrated_N, stream(step, "new_logprob").exp(), 0.0)
        token_gradient_N = token_gradient_N + share_N
    return token_gradient_N * (1.0 if step.setup.loss_scale is None else step.setup.loss_scale)


def _policy(step: Step, mask_N: Tensor, drawn_N: Tensor) -> Tensor:
    setup = step.setup
    if setup.surrogate is None or not mask_N.any():
        return torch.zeros(len(mask_N), dtype=torch.float64)
    advantage_N = stream(step, "advantage")
    factor_N = aggregation_weight(step, mask_N, drawn_N) * policy_weight(step, mask_N)
    if setup.surrogate == "reinforce":
        return factor_N * advantage_N
    log_N = torch.where(mask_N, stream(step, "new_logprob") - stream(step, "old_logprob"), 0.0).nan_to_num()
    count_B = per_row(step, mask_N).clamp(min=1)
    if setup.ratio in ("sequence", "product"):
        of_row_B = per_row(step, log_N)
        log_N = (of_row_B / count_B if setup.ratio == "sequence" else of_row_B)[step.sample_of_token]
    ratio_N = _exp(log_N)
    if setup.surrogate == "cispo":
        assert setup.max_ratio is not None
        return factor_N * ratio_N.clamp(max=setup.max_ratio) * advantage_N
    unclipped_N = factor_N * advantage_N * ~_clipped(ratio_N, advantage_N, setup)
    if setup.ratio == "sequence":  # each token moves the ratio of its whole row
        unclipped_N = mask_N * (per_row(step, unclipped_N) / count_B)[step.sample_of_token]
    return ratio_N * unclipped_N


def _kl(step: Step, drawn_N: Tensor) -> Tensor:
    """Return minus the gradient of the KL term, over all chosen tokens (k3, with a live ratio)."""
    mask_N = stream(step, "kl_mask").bool() & drawn_N
    new_N, old_N, ref_N = (stream(step, name) for name in ("new_logprob", "old_logprob", "ref_logprob"))
    x_N = torch.where(mask_N, new_N - ref_N, 0.0)
    estimator = step.setup.kl_estimator or "k3"
    value_N = kl_estimates(x_N)[estimator]
    slope_N = {"k1": torch.ones_like(x_N), "k2": x_N, "k3": -torch.expm1(-x_N)}[estimator]
    ratio_N = torch.where(mask_N, _exp(new_N - old_N), 0.0)
    if step.setup.kl_weight in ("none", "score"):
        ratio_N = mask_N.double()
    if step.setup.kl_weight in ("ratio", "score"):  # the weight has a gradient too: k · ∂r/∂log π = k · r
        slope_N = slope_N + value_N
    weight = step.metrics.get("weight/kl", step.setup.kl_coef)
    assert weight is not None
    return -weight * aggregation_weight(step, mask_N, drawn_N) * ratio_N * slope_N


def aggregation_weight(step: Step, mask_N: Tensor, drawn_N: Tensor) -> Tensor:
    """Return the aggregation's weight of a token, [N] float64; 0 outside the mask.

    token_mean              1 / tokens
    rank_token_mean         1 / (ranks · tokens of its rank)
    micro_batch_token_mean  1 / (micro-batches · tokens of its micro-batch)
    token_sum               1
    sequence_mean           1 / (rows · own tokens)
    sequence_sum            1 / (rows · budget)
    sequence_total          1 / rows
    prompt_mean             1 / (groups · tokens of its group)
    generation_token_mean   1 / (tokens of its generation · the step's micro-batches ÷ the generation's)
    """
    setup, here_N = step.setup, mask_N.double()
    rows = int((per_row(step, drawn_N) > 0).sum())
    match setup.aggregation:
        case "token_mean" | "rank_token_mean" | "micro_batch_token_mean":
            return here_N / _tokens(step, mask_N)
        case "token_sum":
            return here_N
        case "sequence_mean":
            return here_N / (rows * per_row(step, mask_N).clamp(min=1))[step.sample_of_token]
        case "sequence_total":
            return here_N / rows
        case "prompt_mean":
            names = [row.group_id for row in step.samples]
            number = {name: i for i, name in enumerate(dict.fromkeys(names))}
            group_N = torch.tensor([number[name] for name in names])[step.sample_of_token]
            return here_N / _mean_over(group_N, mask_N)
        case "generation_token_mean":
            assert setup.generation_micro_batches is not None
            counts = step.facts["generation_tokens"]
            tokens_B = torch.tensor([counts[row.sample_id] for row in step.samples]).clamp(min=1)
            share = int(step.passes.micro_batch.max() + 1) / setup.generation_micro_batches
            return here_N / (tokens_B[step.sample_of_token] * share)
        case _:
            assert setup.max_new_tokens is not None
            return here_N / (rows * setup.max_new_tokens)


def _tokens(step: Step, mask_N: Tensor) -> Tensor:
    """Return the denominator of a mean over tokens: scalar; of a mean over parts of their means: [N]."""
    match step.setup.aggregation:
        case "rank_token_mean":
            return _mean_over(step.rank_of_sample[step.sample_of_token], mask_N, of_all=True)
        case "micro_batch_token_mean":
            passes = step.passes
            part_B = torch.full((len(step.samples),), -1)
            part_P = passes.micro_batch * (int(passes.rank.max()) + 1) + passes.rank
            part_B[passes.sample[passes.is_last]] = part_P[passes.is_last]
            return _mean_over(part_B[step.sample_of_token], mask_N)
        case _:
            return mask_N.sum().clamp(min=1)


def _mean_over(part_N: Tensor, mask_N: Tensor, of_all: bool = False) -> Tensor:
    """Return the denominator of a mean over parts of the mean over their tokens: [N].

    Args:
        part_N: the part of each token.
        mask_N: the tokens that count.
        of_all: whether parts without such a token count too.
    """
    parts = part_N[part_N >= 0].unique() if of_all else part_N[mask_N].unique()
    counts = {int(part): int((mask_N & (part_N == part)).sum()) for part in parts}
    return len(parts) * torch.tensor([max(1, counts.get(part, 1)) for part in part_N.tolist()])


def _clipped(ratio_N: Tensor, advantage_N: Tensor, setup: Setup) -> Tensor:
    """Return where the clip removes the gradient: beyond the band, in the direction of the advantage."""
    assert setup.clip_low is not None
    assert setup.clip_high is not None
    clipped_N = ((advantage_N > 0) & (ratio_N > 1 + setup.clip_high)) | (
        (advantage_N < 0) & (ratio_N < 1 - setup.clip_low)
    )
    if setup.dual_clip is not None:
        clipped_N |= (advantage_N < 0) & (ratio_N > setup.dual_clip)
    return clipped_N


def demonstrated(step: Step) -> Tensor:
    """Return tokens of demonstration rows: [N] bool."""
    return per_row(step, stream(step, "supervised_mask"))[step.sample_of_token] > 0


def _exp(log: Tensor) -> Tensor:
    """Return a finite ratio of any shape."""
    return log.clamp(max=MOST_NATS).exp()
