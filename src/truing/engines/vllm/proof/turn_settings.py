"""Sampling parameters of an engine's own that may give the log-probabilities of sampled turns.

One forward gives the trainer's logits of each token; values of a parameter are then fitted, not listed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from truing.models.forward.collate import collate
from truing.models.forward.score import processed
from truing.ops.sampling import processed_logits
from truing.types.sample import Sample
from truing.types.sampling_params import RAW, SamplingParams

Alternative = tuple[float, str]
"""How far the turns are from it, nats, and a sentence about it."""

TEMPERATURES = (0.6, 0.7, 0.8, 0.9, 1.0)
"""Temperatures that a generation_config.json declares together with a truncation."""

TOP_K, TOP_P = (20, 40, 50, 64), (0.8, 0.9, 0.95)
"""Truncations that are declared, also together."""

NUCLEI = (0.9, 0.95, 0.8, 0.85, 0.7, 0.5, *(i / 100 for i in range(50, 100)))
"""Values of top-p, the usual ones first: neighbours may keep the same ids."""

SHARES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
"""Values of min-p."""

REPETITION, ADDED = (0.5, 2.0), (-2.0, 2.0)
"""Ranges of a repetition penalty, and of a presence or frequency penalty."""

GRID, HALVINGS = 41, 30
"""Values of a parameter that are tried, and halvings of the range around the best one."""


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
        return self.difference(logprob_KV.gather(1, self.token_K[:, None])[:, 0])

    def difference(self, logprob_K: Tensor) -> float:
        """Return the largest difference from the engine's, nats."""
        return float((logprob_K - self.found_K).abs().nan_to_num(nan=math.inf).max())


def turn_logits(policy: nn.Module, samples: Sequence[Sample], found: Sequence[Tensor]) -> TurnLogits:
    """Return the trainer's logits of samples, whose log-probabilities the engine ``found``."""
    raw = [replace(sample, sampling_params=RAW, support=None) for sample in samples]
    batch = collate(raw)
    places, logits = zip(*processed(policy, batch, batch.policy_mask), strict=True)
    at = [place for each in places for place in each]
    answers = [samples[b].token_ids[samples[b].prompt_length : t] for b, t in at]
    contexts = [samples[b].token_ids[:t] for b, t in at]
    return TurnLogits(
        torch.cat(logits).cpu(),
        torch.stack([samples[b].token_ids[t] for b, t in at]),
        torch.stack([found[b][t - samples[b].prompt_length] for b, t in at]),
        _padded(answers),
        _padded(contexts),
    )


def own_settings(turns: TurnLogits, params: SamplingParams) -> Iterator[Alternative]:
    """Yield parameters of the engine's own in place of the declared ones, or beside them."""
    whole = replace(params, top_k=0, top_p=1.0, min_p=0.0)
    if not params.truncates_support:
        yield turns.distance(params, penalize_prompt=True), "their penalties count the prompt too"
        yield _fitted(turns, lambda t: replace(params, temperature=t), (0.05, 4.0), "of temperature {:.3g}")
        yield from _penalties(turns, params)
    for temperature in dict.fromkeys([params.temperature, *TEMPERATURES]):
        other = "" if temperature == params.temperature else f"temperature {temperature:g} and "
        for distance, words in _truncations(turns, turns.processed(replace(whole, temperature=temperature))):
            yield distance, f"they are those of {other}{words}"


def _penalties(turns: TurnLogits, params: SamplingParams) -> Iterator[Alternative]:
    """Yield the nearest value of each penalty; presence and frequency are one where no id comes twice."""

    def fitted(name: str, limits: tuple[float, float], words: str, *, penalize_prompt: bool) -> Alternative:
        def make(value: float) -> SamplingParams:
            return replace(params, **{name: value})

        return _fitted(turns, make, limits, words, penalize_prompt=penalize_prompt)

    repetition = "of repetition penalty {:.3g}, which counts the "
    yield fitted("repetition_penalty", REPETITION, repetition + "prompt", penalize_prompt=True)
    yield fitted("repetition_penalty", REPETITION, repetition + "answer", penalize_prompt=False)
    names = {"presence_penalty": "presence penalty", "frequency_penalty": "frequency penalty"}
    if not any(len(set(ids)) < len(ids) for ids in map(_ids, turns.answer_KH)):
        names = {"presence_penalty": "presence or frequency penalty"}
    for name, words in names.items():
        yield fitted(name, ADDED, f"of {words} {{:.3g}}", penalize_prompt=False)


def _ids(history_H: Tensor) -> list[int]:
    return history_H[history_H >= 0].tolist()


def _fitted(
    turns: TurnLogits,
    make: Callable[[float], SamplingParams],
    limits: tuple[float, float],
    words: str,
    *,
    penalize_prompt: bool = False,
) -> Alternative:
    """Return the value of a parameter that is nearest to the turns."""

    def distance(value: float) -> float:
        return turns.distance(make(value), penalize_prompt=penalize_prompt)

    values = torch.linspace(*limits, GRID).tolist()
    best = min(values, key=distance)
    step = values[1] - values[0]
    for _ in range(HALVINGS):
        step /= 2
        best = min((best, max(best - step, limits[0]), best + step), key=distance)
    return distance(best), f"they are those {words.format(best)}"


def _truncations(turns: TurnLogits, logprob_KV: Tensor) -> Iterator[Alternative]:
    """Yield the nearest top-k, top-p and min-p of a distribution, and pairs of the first two."""
    sorted_KV = logprob_KV.sort(1, descending=True).values
    mass_KV = sorted_KV.double().exp().cumsum(1)
    own_K = logprob_KV.gather(1, turns.token_K[:, None])[:, 0]
    rank_K = (logprob_KV > own_K[:, None]).sum(1)
    vocabulary = mass_KV.shape[1]

    def distance(kept_K: Tensor) -> float:
        """Return how far the turns are from the distribution of the first ids."""
        if bool((rank_K >= kept_K).any()) or bool(
            (kept_K > vocabulary).any() or (kept_K == vocabulary).all()
        ):
            return math.inf
        return turns.difference(own_K - mass_KV.gather(1, kept_K[:, None] - 1)[:, 0].log())

    def nucleus(p: float, k: int = vocabulary) -> Tensor:
        within_KV = mass_KV[:, :k] / mass_KV[:, k - 1 : k]
        return (within_KV < p).sum(1).clamp(max=k - 1) + 1

    counts = {f"top-k {k}": torch.full_like(rank_K, k) for k in TOP_K}
    counts |= {f"top-p {p:g}": nucleus(p) for p in NUCLEI}
    counts |= {f"min-p {m:g}": (sorted_KV >= sorted_KV[:, :1] + math.log(m)).sum(1) for m in SHARES}
    counts |= {f"top-k {k} with top-p {p:g}": nucleus(p, k) for k in TOP_K if k < vocabulary for p in TOP_P}
    # any other number of ids, which a nucleus of a nearly uniform policy has too
    counts |= {f"top-k {k}": torch.full_like(rank_K, k) for k in range(1, min(vocabulary, 1000))}
    for words, kept_K in counts.items():
        yield distance(kept_K), words


def _padded(histories: Sequence[Tensor]) -> Tensor:
    """Return ids as rows [K, H], −1 where there are fewer."""
    return nn.utils.rnn.pad_sequence(list(histories), batch_first=True, padding_value=-1)
