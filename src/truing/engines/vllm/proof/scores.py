"""What the trainer expects of rows and turns: their log-probabilities, and how far rounding moves them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from truing.engines.base import Completion, Request
from truing.engines.vllm.proof.prompts import vocabulary_of
from truing.models.forward.collate import collate
from truing.models.forward.rounding_noise import random_rounding
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model, distributions
from truing.models.forward_proof import answer_logprobs, proof_sample
from truing.types.sample import Sample, TurnSpan
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import FinishReason
from truing.types.token import NO_ROUTE, Support

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.05}
"""Nats by which two correct forwards may differ in the engine's dtype."""

ROUNDING_TIMES = 4
"""Multiples of the change by random rounding, which varies by a factor of three between seeds."""

MIXTURE_SHARE = 0.75
"""Share of tokens of a mixture that must agree in another dtype than float32."""

Turn = tuple[Request, Completion]


def row_scores(policy: nn.Module, rows: Sequence[Tensor]) -> Tensor:
    """Return the trainer's log-probabilities of each row but its first token: [rows · (LENGTH − 1)]."""
    samples = [canary_sample(str(i), row[:1], row[1:], RAW) for i, row in enumerate(rows)]
    return torch.cat(sample_scores(policy, samples))


def turn_scores(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Tensor:
    """Return the trainer's log-probabilities of all tokens of the turns; none if the model lacks an id."""
    scored = sample_scores(policy, turn_samples(turns, params)) if in_vocabulary(policy, turns) else []
    return torch.cat([torch.zeros(1), *scored])


def distance(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> float:
    """Return how far the turns' log-probabilities are from the trainer's, nats; impossible ids: ∞."""
    if not in_vocabulary(policy, turns):
        return math.inf
    scored = torch.cat(sample_scores(policy, turn_samples(turns, params)))
    # near a tie a mixture without routes on record may take other experts, and then scores a token otherwise
    apart = is_moe(causal_model(policy)) and not all(_is_routed(turn) for _, turn in turns)
    found = torch.cat([turn.logprob for _, turn in turns])
    return largest(scored - found, MIXTURE_SHARE if apart else 1.0)


def distances(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> list[float]:
    """Return how far each turn's log-probabilities are from the trainer's, nats; impossible ids: ∞."""
    if not in_vocabulary(policy, turns):
        return [math.inf] * len(turns)
    scored = sample_scores(policy, turn_samples(turns, params))
    return [largest(scores - turn.logprob) for scores, (_, turn) in zip(scored, turns, strict=True)]


def largest(difference: Tensor, share: float = 1.0) -> float:
    """Return the largest absolute value of the ``share`` with the smallest; NaN counts as infinite."""
    sizes = difference.abs().nan_to_num(nan=float("inf")).flatten().sort().values
    return float(sizes[math.ceil(share * len(sizes)) - 1])


def tolerance_of(
    difference: float, dtype: torch.dtype, policy: nn.Module, scores: Callable[[], Tensor]
) -> float:
    """Return the nats that rounding explains in the engine's dtype.

    A model of 135M loses 0.2 to 0.5 nats at log-probabilities of −20. So a difference beyond ``TOLERANCE`` is
    compared with the change by random rounding.

    Args:
        difference: largest of the engine's log-probabilities from the trainer's, nats.
        dtype: of the engine.
        policy: computes ``scores``.
        scores: returns the trainer's log-probabilities.
    """
    usual = TOLERANCE[str(dtype).removeprefix("torch.")]
    if dtype is torch.float32 or difference <= usual:
        return usual
    return max(usual, ROUNDING_TIMES * change_by_rounding(policy, scores, dtype))


def change_by_rounding(
    policy: nn.Module, scores: Callable[[], Tensor], dtype: torch.dtype = torch.float64
) -> float:
    """Return the nats by which random rounding changes scores, in ``dtype`` if it is coarser."""
    exact = scores()
    with random_rounding(policy, seed=0, dtype=dtype):
        return largest(scores() - exact)


def agreeing_share(dtype: torch.dtype, *, mixture: bool) -> float:
    """Return the share of tokens whose log-probabilities must agree, where no routes are replayed.

    In a mixture rounding may give a token other experts, and then its log-probability is another one.
    """
    return MIXTURE_SHARE if mixture and dtype is not torch.float32 else 1.0


def likeliest_ids(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> list[bool]:
    """Return for each turn whether it has the likeliest id at each token."""
    samples = turn_samples(turns, params)
    batch = collate(samples)
    best_BT = torch.zeros(batch.token_ids.shape)
    for places, logprob_KV in distributions(policy, batch, batch.policy_mask):
        rows, tokens = zip(*places, strict=True)
        best_BT[list(rows), list(tokens)] = logprob_KV.amax(1).float().cpu()
    best = [best_BT[b, sample.prompt_length : len(sample)] for b, sample in enumerate(samples)]
    own = sample_scores(policy, samples)
    return [bool((a - b <= 1e-6).all()) for a, b in zip(best, own, strict=True)]


@torch.no_grad()
def sample_scores(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the trainer's log-probabilities of each sample's answer."""
    was_training = policy.training
    policy.eval()
    scores = answer_logprobs(policy, samples)
    policy.train(was_training)
    return scores


def turn_samples(turns: Sequence[Turn], params: SamplingParams) -> list[Sample]:
    """Return the turns as samples to score."""
    return [
        canary_sample(
            str(i),
            request.prompt_ids,
            turn.token_ids,
            params,
            turn.support if params.truncates_support else None,
            routes=turn.routes,
        )
        for i, (request, turn) in enumerate(turns)
    ]


def canary_sample(
    name: str,
    prompt: Tensor,
    answer: Tensor,
    params: SamplingParams,
    support: Support | None = None,
    *,
    routes: Tensor | None = None,
) -> Sample:
    """Return a sample of a prompt and its answer."""
    if support is not None:  # the prompt's tokens have none
        before = torch.zeros(len(prompt), dtype=torch.int64)
        support = Support(support.ids, torch.cat([before, support.splits]))
    sample = proof_sample(name, prompt, answer)
    turns = (TurnSpan(len(prompt), len(sample), FinishReason.LENGTH, 0, ""),)
    return replace(sample, turns=turns, sampling_params=params, support=support, routes=routes)


def in_vocabulary(policy: nn.Module, turns: Sequence[Turn]) -> bool:
    """Return whether the model has all ids."""
    vocabulary = vocabulary_of(policy)
    return all(bool(((turn.token_ids >= 0) & (turn.token_ids < vocabulary)).all()) for _, turn in turns)


def _is_routed(turn: Completion) -> bool:
    """Return whether each token has its routes on record but the last; those of a cached prompt may lack."""
    return turn.routes is not None and not bool((turn.routes[:-1] == NO_ROUTE).any())
