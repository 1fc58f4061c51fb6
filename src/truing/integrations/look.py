"""A plain forward of some rows beside what another trainer's own forward said of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from truing.contract import SamplingContract
from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import Logits, plain_logprobs

ROWS, TOKENS = 4, 512
"""Rows are looked at until they have so many tokens; at least one."""

BEHIND = 8
"""Tokens that are put behind a row to compute it in another shape; no token before sees them."""


@torch.no_grad()
def plain_facts(model: Any, step: Step, contract: SamplingContract, *, noisy: bool) -> dict[str, Any]:
    """The largest difference, nats, at a token under the loss; the weights must not have moved yet.

    ``itself`` is how far the plain forward is from itself in another shape: what is normal. It is left out
    where the trainer adds noise, which a plain forward does not.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with what the trainer's forward said.
        contract: under which the trainer says that it scores.
        noisy: whether the trainer's forward is a draw.
    """
    largest: dict[str, float] = {}
    where: dict[str, tuple[str, int]] = {}
    rows = _chosen(step)
    for index, wanted in rows:
        row, part = step.rows[index], slice(step.starts[index], step.starts[index] + step.lengths[index])
        sample: Any = SimpleNamespace(
            token_ids=step.tokens["token_ids"][part], turns=row.turns, contract=contract, support=None
        )
        plain_K, other_K = (
            plain_logprobs(own_logits(model, behind), sample, wanted)[0].cpu().double()
            for behind in (0, BEHIND)
        )
        said = {"itself": other_K}
        for name, stream in (("trainer", "new_logprob"), ("sampler", "sampler_logprob")):
            if stream in step.tokens:
                said[name] = step.tokens[stream][part][wanted].double()
        for name, got_K in said.items():
            apart_K = (got_K - plain_K).abs().nan_to_num(0.0)
            worst = int(apart_K.argmax())
            if float(apart_K[worst]) >= largest.get(name, -1.0):
                largest[name], where[name] = float(apart_K[worst]), (row.sample_id, wanted[worst])
    if noisy:
        del largest["itself"]
    tokens = sum(len(wanted) for _, wanted in rows)
    return {"tokens": tokens, "rows": len(rows), "device": _machine(model), **largest, "where": where}


def _chosen(step: Step) -> list[tuple[int, list[int]]]:
    """Rows to look at, each with its tokens under a loss."""
    trained_N = step.tokens["policy_mask"] | step.tokens["supervised_mask"]
    rows: list[tuple[int, list[int]]] = []
    for index, (_, _, part) in enumerate(step.slices()):
        wanted = trained_N[part].nonzero()[:, 0].tolist()
        tokens = sum(len(each) for _, each in rows)
        if rows and (len(rows) == ROWS or tokens + len(wanted) > TOKENS):
            break
        if wanted:
            rows.append((index, wanted))
    return rows


def own_logits(model: Any, behind: int) -> Logits:
    """The model's own forward of one row; ``behind`` more tokens make it two rows of another length."""
    device = next(model.parameters()).device

    def logits(ids: Tensor, places: Tensor) -> Tensor:
        rows = torch.cat([ids, ids[:behind]]).expand(2 if behind else 1, -1).to(device)
        return model(input_ids=rows, logits_to_keep=places.to(device), use_cache=False).logits[0].float()

    return logits


def drops(model: nn.Module) -> bool:
    """Whether anything is dropped in training."""
    modules: Sequence[Any] = list(model.modules())
    by_layer = any(isinstance(each, nn.Dropout) and each.p > 0 for each in modules)
    return by_layer or any(getattr(each, "attention_dropout", 0.0) > 0 for each in modules)


def _machine(model: nn.Module) -> str:
    """Its device, and what it rounds in where that is not float32."""
    weight = next(model.parameters())
    coarse = torch.is_autocast_enabled(weight.device.type) or weight.dtype is not torch.float32
    return f"{weight.device.type}, {weight.dtype}" if coarse else weight.device.type
