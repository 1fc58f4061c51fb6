"""A plain forward of some rows beside what another trainer's own forward said of them."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from truing.contract import SamplingContract
from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import plain_logprobs

ROWS, TOKENS = 4, 512
"""Rows are looked at until they have so many tokens; at least one."""


@torch.no_grad()
def plain_facts(model: Any, step: Step, contract: SamplingContract) -> dict[str, Any]:
    """The largest difference, nats, at a token under the loss; the weights must not have moved yet.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with what the trainer's forward said.
        contract: under which the trainer says that it scores.
    """
    device = next(model.parameters()).device

    def logits(ids: Tensor, places: Tensor) -> Tensor:
        kept = places.to(device)
        return model(input_ids=ids[None].to(device), logits_to_keep=kept, use_cache=False).logits[0].float()

    largest: dict[str, float] = {}
    where: dict[str, tuple[str, int]] = {}
    tokens = rows = 0
    for _, row, part in step.slices():
        wanted = step.tokens["policy_mask"][part].nonzero()[:, 0].tolist()
        if not wanted:
            continue
        if rows and (rows == ROWS or tokens + len(wanted) > TOKENS):
            break
        sample: Any = SimpleNamespace(
            token_ids=step.tokens["token_ids"][part], turns=row.turns, contract=contract, support=None
        )
        plain_K = plain_logprobs(logits, sample, wanted)[0].cpu().double()
        rows, tokens = rows + 1, tokens + len(wanted)
        for name, stream in (("trainer", "new_logprob"), ("sampler", "sampler_logprob")):
            if stream in step.tokens:
                apart_K = (step.tokens[stream][part][wanted].double() - plain_K).abs().nan_to_num(0.0)
                worst = int(apart_K.argmax())
                if float(apart_K[worst]) >= largest.get(name, -1.0):
                    largest[name], where[name] = float(apart_K[worst]), (row.sample_id, wanted[worst])
    return {"tokens": tokens, "rows": rows, "device": device.type, **largest, "where": where}
