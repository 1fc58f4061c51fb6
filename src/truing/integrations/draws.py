"""Bets on what another trainer's sampler drew: was it drawn from what the trainer scores by?"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from truing.contract import SamplingContract
from truing.doctor.oracle.audit import increments
from truing.doctor.oracle.forward import plain_distributions
from truing.integrations.look import own_logits
from truing.rng import permutation
from truing.training.audit import AUDITED, bets


@torch.no_grad()
def drawn_facts(
    model: Any,
    drawn: Sequence[tuple[list[int], list[int]]],
    contract: SamplingContract,
    stops: Sequence[int],
    key: tuple[object, ...],
) -> dict[str, Any]:
    """Bets on some rows of a generation; which ones is a matter of the key, not of what they earn.

    Args:
        model: the policy that drew them, in evaluation mode.
        drawn: prompt and answer of each row, as the sampler had them.
        contract: under which the trainer says that it scores.
        stops: ids that end an answer.
        key: of the choice.
    """
    gains: dict[str, list[float]] = {}
    tokens = 0
    for i in permutation(len(drawn), *key, "audit")[:AUDITED]:
        prompt, answer = drawn[i]
        start, end = len(prompt), len(prompt) + len(answer)
        row: Any = SimpleNamespace(
            token_ids=torch.tensor([*prompt, *answer]),
            turns=[SimpleNamespace(start=start, end=end)],
            prompt_length=start,
            contract=contract,
            support=None,
        )
        wanted = list(range(start, end))
        if not wanted:
            continue
        logprob_KV = torch.stack(plain_distributions(own_logits(model, 0), row, wanted)).double().cpu()
        tokens += len(wanted)
        for name, each in increments(bets([row], [(0, t) for t in wanted], logprob_KV, stops)).items():
            before = gains.get(name, [0.0] * len(each))
            gains[name] = [a + b for a, b in zip(before, each, strict=True)]
    return {"tokens": tokens, "gains": gains}
