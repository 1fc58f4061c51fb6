"""Audit of another trainer's samples: were they drawn from the distribution that the trainer scores?

An e-process tests the tokens. If torch draws the random numbers, the draws are replayed too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.doctor.oracle.forward import plain_distributions
from truing.integrations.trl.forward_check import model_logits
from truing.measurements.draw_audit import AUDITED_ROLLOUTS, add_gains, drawn_tokens, tokens_of_rollout
from truing.models.forward.rounding_noise import device_and_precision, is_coarse, random_rounding
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import permutation

MAX_RANDOM_NUMBERS = 200_000_000
"""Most random numbers of a replay; each token takes one per id of the vocabulary."""


@dataclass(frozen=True)
class Generation:
    """The samples of one generation, and torch's RNG state before them."""

    drawn: Sequence[tuple[list[int], list[int]]]  # prompt and answer ids of each row, from the sampler
    rng_state: Tensor | None  # None if torch does not draw, or truncates the distribution


@torch.no_grad()
def draw_audit_facts(
    model: Any,
    generation: Generation,
    sampling_params: SamplingParams,
    stop_ids: Sequence[int],
    key: tuple[object, ...],
) -> dict[str, Any]:
    """Return the fact ``audit`` of some rows of a generation; the key selects them, never their rewards.

    Args:
        model: the policy that sampled, in evaluation mode.
        generation: the samples.
        sampling_params: of the trainer's scoring.
        stop_ids: ids that end an answer.
        key: selects the rows.
    """
    gains: dict[str, list[float]] = {}
    tables: dict[int, Tensor] = {}
    coarse, rounding = is_coarse(device_and_precision(model)), 0.0
    most = tokens_of_rollout(model.config.get_text_config().vocab_size)
    for i in permutation(len(generation.drawn), *key, "audit")[:AUDITED_ROLLOUTS]:
        prompt, answer = generation.drawn[i]
        start, end = len(prompt), len(prompt) + len(answer)
        row: Any = SimpleNamespace(
            token_ids=torch.tensor([*prompt, *answer]),
            turns=[SimpleNamespace(start=start, end=end)],
            prompt_length=start,
            sampling_params=sampling_params,
            support=None,
        )
        places = list(range(start, min(end, start + most)))
        if not places:
            continue
        tables[i] = torch.stack(plain_distributions(model_logits(model), row, places)).double().cpu()
        if coarse and generation.rng_state is not None:
            with random_rounding(model, i):
                other_TV = torch.stack(plain_distributions(model_logits(model), row, places)).double().cpu()
            rounding = max(rounding, float((other_TV - tables[i]).abs().nan_to_num(0.0).max()))
        add_gains(gains, drawn_tokens([row], [(0, t) for t in places], tables[i], stop_ids))
    facts: dict[str, Any] = {"tokens": sum(map(len, tables.values())), "gains": gains}
    if generation.rng_state is None or not tables:
        return facts
    differences = _replay_draws(model, generation, tables, generation.rng_state)
    if differences:
        (nats, i, t), tolerance = max(differences), max(TOLERANCE, MEAN_MULTIPLES * rounding)
        facts["replay"] = {
            "tokens": len(differences),
            "missed": sum(each > tolerance for each, _, _ in differences),
            "largest": nats,
            "instead": "",
            "where": (f"{i}", len(generation.drawn[i][0]) + t),
            "device": device_and_precision(model),
            **({"rounding": rounding} if coarse else {}),
        }
    return facts


def _replay_draws(
    model: Any, generation: Generation, tables: Mapping[int, Tensor], rng_state: Tensor
) -> list[tuple[float, int, int]]:
    """Replay the draws: return nats, row and token of each; none if they agree only as often as by chance.

    ``torch.multinomial`` samples argmax_v p_v / q_v with exponential q. A draw is off by the log-difference
    between the largest ratio and that of the sampled id.
    """
    rows, vocab = len(generation.drawn), next(iter(tables.values())).shape[1]
    device = next(model.parameters()).device
    generator = torch.Generator(device)
    generator.set_state(rng_state)
    differences: list[tuple[float, int, int]] = []
    expected = 0.0
    for t in range(min(max(map(len, tables.values())), max(1, MAX_RANDOM_NUMBERS // (rows * vocab)))):
        noise_NV = -torch.empty(rows, vocab, device=device).exponential_(1, generator=generator).log().cpu()
        for i, logprob_TV in tables.items():
            if t < len(logprob_TV):
                score_V, drawn = logprob_TV[t] + noise_NV[i], generation.drawn[i][1][t]
                differences.append((float(score_V.max() - score_V[drawn]), i, t))
                expected += float(logprob_TV[t, drawn].exp())
    count = len(differences)
    agreed, rate = sum(nats <= TOLERANCE for nats, _, _ in differences), expected / count
    by_chance = agreed <= count * rate + 4 * math.sqrt(count * rate * (1 - rate)) + 1
    return [] if by_chance else differences
