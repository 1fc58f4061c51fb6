"""What another trainer's sampler drew: was it drawn from what the trainer scores by?

It is bet on, and where the random numbers are torch's own, the draws are made once more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.oracle.draw_e_process import log_wealth_increments
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.doctor.oracle.forward import plain_distributions
from truing.instrumentation.draw_audit import AUDITED_ATTEMPTS, drawn_tokens
from truing.integrations.trl.forward_check import model_logits
from truing.models.forward.rounding_noise import device_and_precision, random_rounding
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import permutation

MAX_RANDOM_NUMBERS = 200_000_000
"""Random numbers that are made once more at most; each token takes one for every id there is."""


@dataclass(frozen=True)
class Generation:
    """What a sampler drew, and the state of torch's random numbers before."""

    drawn: Sequence[tuple[list[int], list[int]]]  # prompt and answer of each row, as the sampler had them
    rng_state: Tensor | None  # None where it draws by other numbers, or not from all that is scored


@torch.no_grad()
def draw_audit_facts(
    model: Any,
    generation: Generation,
    sampling_params: SamplingParams,
    stop_ids: Sequence[int],
    key: tuple[object, ...],
) -> dict[str, Any]:
    """Bets on some rows of a generation; which ones is a matter of the key, not of what they earn.

    Args:
        model: the policy that drew them, in evaluation mode.
        generation: what was drawn.
        contract: under which the trainer says that it scores.
        stops: ids that end an answer.
        key: of the choice.
    """
    gains: dict[str, list[float]] = {}
    tables: dict[int, Tensor] = {}
    coarse, rounding = device_and_precision(model) != "cpu", 0.0
    for i in permutation(len(generation.drawn), *key, "audit")[:AUDITED_ATTEMPTS]:
        prompt, answer = generation.drawn[i]
        start, end = len(prompt), len(prompt) + len(answer)
        row: Any = SimpleNamespace(
            token_ids=torch.tensor([*prompt, *answer]),
            turns=[SimpleNamespace(start=start, end=end)],
            prompt_length=start,
            sampling_params=sampling_params,
            support=None,
        )
        wanted = list(range(start, end))
        if not wanted:
            continue
        tables[i] = torch.stack(plain_distributions(model_logits(model), row, wanted)).double().cpu()
        if coarse and generation.rng_state is not None:
            with random_rounding(model, i):
                other_TV = torch.stack(plain_distributions(model_logits(model), row, wanted)).double().cpu()
            rounding = max(rounding, float((other_TV - tables[i]).abs().nan_to_num(0.0).max()))
        for name, each in log_wealth_increments(
            drawn_tokens([row], [(0, t) for t in wanted], tables[i], stop_ids)
        ).items():
            before = gains.get(name, [0.0] * len(each))
            gains[name] = [a + b for a, b in zip(before, each, strict=True)]
    found: dict[str, Any] = {"tokens": sum(map(len, tables.values())), "gains": gains}
    if generation.rng_state is None or not tables:
        return found
    behind = _replay_draws(model, generation, tables, generation.rng_state)
    if behind:
        (nats, i, t), edge = max(behind), max(TOLERANCE, MEAN_MULTIPLES * rounding)
        found["replay"] = {
            "tokens": len(behind),
            "missed": sum(each > edge for each, _, _ in behind),
            "largest": nats,
            "instead": "",
            "where": (f"{i}", len(generation.drawn[i][0]) + t),
            "device": device_and_precision(model),
            **({"rounding": rounding} if coarse else {}),
        }
    return found


def _replay_draws(
    model: Any, generation: Generation, tables: Mapping[int, Tensor], chance: Tensor
) -> list[tuple[float, int, int]]:
    """The rows' draws once more: nats, row and token of each; none where they agree only as by chance.

    ``torch.multinomial`` draws one id of each row as the first in a race: argmax p_v / q_v, q exponential. So
    a draw is off by as many nats as the id that was drawn comes behind the first.
    """
    rows, vocab = len(generation.drawn), next(iter(tables.values())).shape[1]
    device = next(model.parameters()).device
    numbers = torch.Generator(device)
    numbers.set_state(chance)
    behind: list[tuple[float, int, int]] = []
    expected = 0.0
    for t in range(min(max(map(len, tables.values())), max(1, MAX_RANDOM_NUMBERS // (rows * vocab)))):
        race_NV = -torch.empty(rows, vocab, device=device).exponential_(1, generator=numbers).log().cpu()
        for i, logprob_TV in tables.items():
            if t < len(logprob_TV):
                race_V, drawn = logprob_TV[t] + race_NV[i], generation.drawn[i][1][t]
                behind.append((float(race_V.max() - race_V[drawn]), i, t))
                expected += float(logprob_TV[t, drawn].exp())
    count = len(behind)
    agreed, fair = sum(nats <= TOLERANCE for nats, _, _ in behind), expected / count
    by_chance = agreed <= count * fair + 4 * math.sqrt(count * fair * (1 - fair)) + 1
    return [] if by_chance else behind
