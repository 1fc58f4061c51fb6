"""Why sampled turns may have other log-probabilities: each cause is tried on the turns of a failed proof.

One forward gives the trainer's logits of each token. The value of a sampling parameter that the engine may
have applied instead is computed from them and the engine's log-probabilities.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.vllm.proof.prompts import CACHED_LENGTH
from truing.engines.vllm.proof.scores import (
    TOLERANCE,
    Turn,
    distance,
    distances,
    in_vocabulary,
    turn_samples,
)
from truing.models.forward.collate import collate
from truing.models.forward.score import pad_histories, processed
from truing.models.lora import without_adapter
from truing.ops.sampling import processed_logits
from truing.types.sampling_params import RAW, SamplingParams

Alternative = tuple[float, str]
"""How far the turns are from it, nats, and a sentence about it."""

SAME = 1e-5
"""Nats by which equally good alternatives differ."""

LEFT = 0.25
"""Share of the difference that a cause may leave: within a wide tolerance other causes fit nearly as well."""

FAR_TIMES = 10
"""Multiples of the tolerance by which turns are far off."""

TEMPERATURES, REPETITION, ADDED = (0.05, 4.0), (0.5, 2.0), (-2.0, 2.0)
"""Ranges of a temperature, of a repetition penalty, and of a presence or frequency penalty."""

GRID, HALVINGS = 41, 30
"""Values of a parameter that are tried, and halvings of the range around the best one."""

UNKNOWN = "no single sampling parameter was found that gives them"

UNADAPTED = "they are those of the base model without its adapter"

CACHED = "its prefix cache holds other keys and values: without the cache the same turns are right"

SEVERAL_ENGINES = "another engine answers some of the requests, as behind one address of several"


Uncached = Callable[[], Sequence[Turn]]
"""Samples the same turns again, without what the engine has cached."""


def turns_cause(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, tolerance: float, uncached: Uncached
) -> str:
    """Return why turns may have other log-probabilities."""
    unadapted = turns_of_base(policy, turns, params) if isinstance(policy, PeftModel) else []
    if len(unadapted) == len(turns):
        return UNADAPTED
    others = [turn for turn in turns if turn not in unadapted]
    if unadapted and distance(policy, others, params) <= tolerance:
        return SEVERAL_ENGINES
    if words := _own_setting(policy, turns, params, tolerance):
        return words
    return CACHED if distance(policy, uncached(), params) <= tolerance else UNKNOWN


def _own_setting(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, tolerance: float) -> str:
    """Return the parameter that gives the turns, "" without one.

    After a long prompt more is lost by rounding. So if only turns after one differ, their few tokens tell
    parameters apart where an engine computes exactly, or if they are far off.
    """
    if not in_vocabulary(policy, turns):
        return ""
    short = [(request, turn) for request, turn in turns if len(request.prompt_ids) <= CACHED_LENGTH]
    if distance(policy, short, params) <= tolerance:
        is_far = distance(policy, turns, params) > FAR_TIMES * tolerance
        if tolerance > TOLERANCE["float32"] and not is_far:
            return ""
        short = turns
    return nearest(own_settings(turn_logits(policy, short), params), tolerance)


def turns_of_base(policy: PeftModel, turns: Sequence[Turn], params: SamplingParams) -> list[Turn]:
    """Return the turns that are much nearer to the base without its adapter."""
    own = distances(policy, turns, params)
    with without_adapter(policy):
        of_base = distances(policy, turns, params)
    return [turn for turn, a, b in zip(turns, own, of_base, strict=True) if b <= LEFT * a and b < math.inf]


def nearest(alternatives: Iterable[Alternative], tolerance: float) -> str:
    """Return the first of the alternatives that are as near as the nearest one; "" if none is near."""
    fitting = [each for each in alternatives if each[0] <= tolerance]
    closest = min((apart for apart, _ in fitting), default=0.0)
    return next((words for apart, words in fitting if apart <= 2 * closest + SAME), "")


@dataclass(frozen=True, eq=False)
class TurnLogits:
    """K tokens of sampled turns: the model's logits, and what the engine says of them."""

    logits_KV: Tensor
    token_K: Tensor
    found_K: Tensor  # the engine's log-probabilities
    answer_KH: Tensor  # earlier ids of the turn; −1 where there are fewer
    context_KH: Tensor  # the same with the prompt's

    def processed(self, params: SamplingParams, *, penalize_prompt: bool = False) -> Tensor:
        """Return the log-probabilities [K, V] under parameters."""
        history = self.context_KH if penalize_prompt else self.answer_KH
        return processed_logits(self.logits_KV, params, history).log_softmax(1)

    def distance(self, params: SamplingParams, *, penalize_prompt: bool = False) -> float:
        """Return how far the engine's log-probabilities are from those under parameters, nats."""
        logprob_KV = self.processed(params, penalize_prompt=penalize_prompt)
        logprob_K = logprob_KV.gather(1, self.token_K[:, None])[:, 0]
        return float((logprob_K - self.found_K).abs().nan_to_num(nan=math.inf).max())


@torch.no_grad()
def turn_logits(policy: nn.Module, turns: Sequence[Turn]) -> TurnLogits:
    """Return the trainer's logits of turns, and the engine's log-probabilities."""
    samples = turn_samples(turns, RAW)
    batch = collate(samples)
    places, logits = zip(*processed(policy, batch, batch.policy_mask), strict=True)
    at = [place for each in places for place in each]
    starts = [sample.prompt_length for sample in samples]
    return TurnLogits(
        torch.cat(logits).cpu(),
        torch.stack([samples[b].token_ids[t] for b, t in at]),
        torch.stack([turns[b][1].logprob[t - starts[b]] for b, t in at]),
        pad_histories([samples[b].token_ids[starts[b] : t] for b, t in at]),
        pad_histories([samples[b].token_ids[:t] for b, t in at]),
    )


def own_settings(turns: TurnLogits, params: SamplingParams) -> Iterator[Alternative]:
    """Yield parameters that the engine may apply in place of the declared ones, or beside them."""
    whole = replace(params, top_k=RAW.top_k, top_p=RAW.top_p, min_p=RAW.min_p)
    neutral = replace(RAW, max_new_tokens=params.max_new_tokens, stop_ids=params.stop_ids)
    if params != neutral:
        yield turns.distance(neutral), "they are those without any parameter (raw log-probabilities)"
    if params != whole:
        words = "they are those of the whole distribution, without top-k, top-p or min-p"
        yield turns.distance(whole), words
    else:
        yield turns.distance(params, penalize_prompt=True), "their penalties count the prompt too"
        yield _fitted(turns, params, "temperature", TEMPERATURES, "temperature {:.3g}")
        words = "repetition penalty {:.3g}, which counts the "
        yield _fitted(turns, params, "repetition_penalty", REPETITION, words + "prompt", penalize_prompt=True)
        yield _fitted(turns, params, "repetition_penalty", REPETITION, words + "answer")
        repeats = any(len(ids := row[row >= 0].tolist()) > len(set(ids)) for row in turns.answer_KH)
        yield _fitted(
            turns,
            params,
            "presence_penalty",
            ADDED,
            ("presence penalty" if repeats else "presence or frequency penalty") + " {:.3g}",
        )
        yield _fitted(turns, params, "frequency_penalty", ADDED, "frequency penalty {:.3g}")


def _fitted(
    turns: TurnLogits,
    params: SamplingParams,
    name: str,
    limits: tuple[float, float],
    words: str,
    *,
    penalize_prompt: bool = False,
) -> Alternative:
    """Return the value of a parameter that is nearest to the turns."""

    def apart(value: float) -> float:
        return turns.distance(replace(params, **{name: value}), penalize_prompt=penalize_prompt)

    values = torch.linspace(*limits, GRID).tolist()
    best = min(values, key=apart)
    step = values[1] - values[0]
    for _ in range(HALVINGS):
        step /= 2
        best = min((best, max(best - step, limits[0]), best + step), key=apart)
    return apart(best), f"they are those of {words.format(best)}"
