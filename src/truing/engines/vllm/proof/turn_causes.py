"""What an engine may do wrong with sampled turns: each is tried on the turns of a failed proof."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import inf

import torch
from torch import Tensor, nn

from truing.engines.base import Completion, Request
from truing.engines.vllm.proof.canary import MIXTURE_SHARE, canary_sample, largest, sample_scores
from truing.engines.vllm.proof.turn_settings import Alternative, own_settings, turn_logits
from truing.models.forward.collate import collate
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model, distributions
from truing.types.sample import Sample
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.token import NO_ROUTE, Support

KEPT = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100, 128)
"""Ids to which an engine may cut prompts on the left."""

Turn = tuple[Request, Completion]


def distance(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, *, penalize_prompt: bool = False
) -> float:
    """Return how far the turns' log-probabilities are from the trainer's, nats; impossible ids: ∞."""
    if not _in_vocabulary(policy, turns):
        return inf
    scored = sample_scores(policy, turn_samples(turns, params, penalize_prompt=penalize_prompt))
    # near a tie a mixture without routes on record may take other experts, and then scores a token otherwise
    apart = is_moe(causal_model(policy)) and not all(_is_routed(turn) for _, turn in turns)
    return _largest(scored, [turn.logprob for _, turn in turns], MIXTURE_SHARE if apart else 1.0)


def distances(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> list[float]:
    """Return how far each turn's log-probabilities are from the trainer's, nats; impossible ids: ∞."""
    if not _in_vocabulary(policy, turns):
        return [inf] * len(turns)
    scored = sample_scores(policy, turn_samples(turns, params))
    return [largest(scores - turn.logprob) for scores, (_, turn) in zip(scored, turns, strict=True)]


def turn_scores(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Tensor:
    """Return the trainer's log-probabilities of all tokens of the turns; none if the model lacks an id."""
    scored = sample_scores(policy, turn_samples(turns, params)) if _in_vocabulary(policy, turns) else []
    return torch.cat([torch.zeros(1), *scored])


def _is_routed(turn: Completion) -> bool:
    """Return whether each token has its routes on record but the last; those of a cached prompt may lack."""
    return turn.routes is not None and not bool((turn.routes[:-1] == NO_ROUTE).any())


def without_routes(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns without the expert routes on record."""
    return [(request, replace(turn, routes=None)) for request, turn in turns]


def beginnings(turns: Sequence[Turn]) -> list[Turn]:
    """Return the first token of each turn."""
    return [(request, _first(turn)) for request, turn in turns]


def alternatives(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Iterator[Alternative]:
    """Yield what an engine may do wrong."""
    for name, other in _other_params(params).items():
        yield distance(policy, turns, other), f"they are those {name}"
    for shift in (1, -1):
        moved = [(request, replace(turn, token_ids=turn.token_ids - shift)) for request, turn in turns]
        yield distance(policy, moved, params), f"its ids are off by {shift:+d}"
    yield from other_routes(policy, turns, params)
    if _in_vocabulary(policy, turns):
        yield from _other_numbers(policy, turns, params)
        logits = turn_logits(policy, turn_samples(turns, params), [turn.logprob for _, turn in turns])
        yield from own_settings(logits, params)
        yield from other_prompts(policy, turns, params)


def other_prompts(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Iterator[Alternative]:
    """Yield prompts that an engine may read in place of those that were sent."""
    bos = causal_model(policy).config.get_text_config().bos_token_id
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "it reads the first id of a prompt twice": lambda ids: torch.cat([ids[:1], ids]),
        "it reads a prompt without its first id": lambda ids: ids[1:],
        "it reads a prompt without its last id": lambda ids: ids[:-1],
    }
    if bos is not None:
        changes["it reads a prompt with a BOS token before it"] = lambda ids: torch.cat(
            [ids.new_tensor([bos]), ids]
        )
    longest = max((len(request.prompt_ids) for request, _ in turns), default=0)
    for kept in KEPT:
        if kept < longest:
            changes[f"it reads the last {kept} ids of a prompt alone"] = lambda ids, kept=kept: ids[-kept:]
    for words, change in changes.items():
        if all(len(change(request.prompt_ids)) for request, _ in turns):
            changed = [
                (replace(request, prompt_ids=change(request.prompt_ids)), turn) for request, turn in turns
            ]
            yield distance(policy, without_routes(changed), params), words


def exchanged(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> float:
    """Return how far the turns are from the nearest exchange of answers, nats."""
    if not _in_vocabulary(policy, turns):
        return inf
    # routes on record are those of another prompt, then
    pairs = without_routes([(request, turn) for request, _ in turns for _, turn in turns])
    scored = iter(sample_scores(policy, turn_samples(pairs, params)))  # shares each prompt
    table = [[largest(next(scored) - turn.logprob) for _, turn in turns] for _ in turns]
    orders = permutations(range(len(turns)))
    next(orders)  # each answer with its own request
    return min((max(row[j] for row, j in zip(table, order, strict=True)) for order in orders), default=inf)


def likeliest_ids(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> list[bool]:
    """Return for each turn whether it has the likeliest id at each token."""
    samples = turn_samples(turns, params)
    best, own = _likeliest(policy, samples), sample_scores(policy, samples)
    return [bool((a - b <= 1e-6).all()) for a, b in zip(best, own, strict=True)]


def other_routes(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Iterator[Alternative]:
    """Yield what an engine may do wrong with the expert routes that it returns."""
    routed = [(request, turn, turn.routes) for request, turn in turns if turn.routes is not None]
    if len(routed) < len(turns):
        return
    for shift in (1, -1):
        moved = [(r, replace(turn, routes=_placed(routes.roll(-shift, 0)))) for r, turn, routes in routed]
        name = "before" if shift > 0 else "after"
        yield distance(policy, moved, params), f"its expert routes are those of the token {name}"


def _placed(routes: Tensor) -> Tensor:
    """Return shifted routes; what was shifted around, and the last token, have none."""
    return torch.cat([routes[:-1], torch.full_like(routes[:1], NO_ROUTE)])


def _other_params(params: SamplingParams) -> Mapping[str, SamplingParams]:
    """Return other sampling parameters that an engine may compute with, by their name in a sentence."""
    neutral = replace(RAW, max_new_tokens=params.max_new_tokens, stop_ids=params.stop_ids)
    others = {"without any parameter (raw log-probabilities)": neutral}
    others |= {
        f"without sampling.{name}": replace(params, **{name: getattr(RAW, name)})
        for name in ("temperature", "presence_penalty", "frequency_penalty", "min_new_tokens")
    }
    others["of the whole distribution, without top-k, top-p or min-p"] = replace(
        params, top_k=RAW.top_k, top_p=RAW.top_p, min_p=RAW.min_p
    )
    return {name: other for name, other in others.items() if other != params}


def _other_numbers(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Iterator[Alternative]:
    """Yield numbers that the right distribution gives, which are not the sampled ids' own."""
    samples = turn_samples(turns, params)
    scored, found = sample_scores(policy, samples), [turn.logprob for _, turn in turns]
    for dtype in (torch.bfloat16, torch.float16):
        if all(map(partial(_is_rounded, dtype=dtype), found, scored)):
            yield 0.0, f"they are rounded to {str(dtype).removeprefix('torch.')}"
    likeliest = _likeliest(policy, samples)
    yield (
        _largest([torch.zeros_like(each) for each in found], found),
        "they are all 0, as where nothing is computed",
    )
    yield (
        _largest([each.cumsum(0) for each in scored], found),
        "they are sums over the tokens of a turn so far",
    )
    means = [each.mean().expand_as(each) for each in scored]
    yield _largest(means, found), "they are the mean over the tokens of a turn"
    for base in (2, 10):
        others = [each / math.log(base) for each in scored]
        yield _largest(others, found), f"they are logarithms to base {base}, not natural ones"
    yield _largest(likeliest, found), "they are those of the likeliest id, not of the sampled one"
    if any(len(each) > 1 for each in found):
        yield _largest([t[:-1] for t in scored], [t[1:] for t in found]), "they are those of the token before"
        yield _largest([t[1:] for t in scored], [t[:-1] for t in found]), "they are those of the token after"


def _is_rounded(found_T: Tensor, scored_T: Tensor, dtype: torch.dtype) -> bool:
    """Return whether log-probabilities have no more digits than a dtype, and are near the trainer's."""
    near = (found_T - scored_T).abs() <= torch.finfo(dtype).eps * scored_T.abs()
    return bool(torch.equal(found_T, found_T.to(dtype).float()) and near.all())


def _likeliest(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the largest log-probability at each token of the samples' answers."""
    batch = collate(list(samples))
    best_BT = torch.zeros(batch.token_ids.shape)
    for places, logprob_KV in distributions(policy, batch, batch.policy_mask):
        rows, tokens = zip(*places, strict=True)
        best_BT[list(rows), list(tokens)] = logprob_KV.amax(1).float().cpu()
    return [best_BT[b, sample.prompt_length : len(sample)] for b, sample in enumerate(samples)]


def _largest(scored: Sequence[Tensor], found: Sequence[Tensor], share: float = 1.0) -> float:
    """Return the largest difference of log-probabilities, nats, of a share; empty turns have none."""
    return largest(torch.cat(list(scored)) - torch.cat(list(found)), share)


def turn_samples(
    turns: Sequence[Turn], params: SamplingParams, *, penalize_prompt: bool = False
) -> list[Sample]:
    """Return the turns as samples to score."""
    return [
        canary_sample(
            str(i),
            request.prompt_ids,
            turn.token_ids,
            params,
            turn.support if params.truncates_support else None,
            routes=turn.routes,
            penalize_prompt=penalize_prompt,
        )
        for i, (request, turn) in enumerate(turns)
    ]


def _in_vocabulary(policy: nn.Module, turns: Sequence[Turn]) -> bool:
    """Return whether the model has all ids."""
    vocabulary = causal_model(policy).config.get_text_config().vocab_size
    return all(bool(((turn.token_ids >= 0) & (turn.token_ids < vocabulary)).all()) for _, turn in turns)


def _first(turn: Completion) -> Completion:
    """Return the first token of a turn."""
    support = turn.support and Support(turn.support.at(0), torch.tensor([0, len(turn.support.at(0))]))
    routes = None if turn.routes is None else turn.routes[: len(turn.routes) - len(turn.token_ids) + 1]
    return replace(
        turn,
        token_ids=turn.token_ids[:1],
        origin=turn.origin[:1],
        logprob=turn.logprob[:1],
        support=support,
        routes=routes,
    )
