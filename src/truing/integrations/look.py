"""A plain forward and backward of rows beside what another trainer's own said of them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from truing.contract import SamplingContract
from truing.doctor.evidence import Row, Step
from truing.doctor.oracle.forward import Logits, plain_logprobs
from truing.training.arrival import FREE, beside, flat_gradient, pull_of, silent
from truing.training.facts import spot
from truing.training.unheard import unheard

ROWS, TOKENS = 4, 512
"""Rows are looked at until they have so many tokens; at least one."""

BEHIND = 8
"""Tokens that are put behind a row to compute it in another shape; no token before sees them."""


STREAMS = {"trainer": "new_logprob", "sampler": "sampler_logprob", "old": "old_logprob"}
"""What a plain forward of the policy is compared with, before the first update of a batch."""


@torch.no_grad()
def plain_facts(
    model: Any, step: Step, contract: SamplingContract, *, noisy: bool, reference: Any = None
) -> dict[str, Any]:
    """The largest difference, nats, at a token under the loss; the weights must not have moved yet.

    ``itself`` is how far the plain forward is from itself in another shape: what is normal. It is left out
    where the trainer adds noise, which a plain forward does not.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with what the trainer's forward said.
        contract: under which the trainer says that it scores.
        noisy: whether the trainer's forward is a draw.
        reference: gives the reference model within a block; None where there is none.
    """
    largest: dict[str, float] = {}
    where: dict[str, tuple[str, int]] = {}

    def compare(name: str, got_K: Tensor, right_K: Tensor, row: Row, wanted: Sequence[int]) -> None:
        apart_K = (got_K - right_K).abs().nan_to_num(0.0)
        worst = int(apart_K.argmax())
        if float(apart_K[worst]) >= largest.get(name, -1.0):
            largest[name], where[name] = float(apart_K[worst]), (row.sample_id, wanted[worst])

    rows = _chosen(step)
    for index, wanted in rows:
        row, part, sample = _sample(step, index, contract)
        plain_K, other_K = (_logprobs(model, sample, wanted, behind) for behind in (0, BEHIND))
        compare("itself", other_K, plain_K, row, wanted)
        for name, stream in STREAMS.items():
            if stream in step.tokens:
                compare(name, step.tokens[stream][part][wanted].double(), plain_K, row, wanted)
        if reference is not None and "ref_logprob" in step.tokens:
            with reference() as other:
                theirs_K = _logprobs(other, sample, wanted, 0)
            compare("reference", step.tokens["ref_logprob"][part][wanted].double(), theirs_K, row, wanted)
    if noisy:
        del largest["itself"]
    tokens = sum(len(wanted) for _, wanted in rows)
    return {"tokens": tokens, "rows": len(rows), "device": _machine(model), **largest, "where": where}


def _logprobs(model: Any, sample: Any, wanted: Sequence[int], behind: int) -> Tensor:
    """Of tokens of a row, by the model's own forward: [K] float64 on the CPU."""
    return plain_logprobs(own_logits(model, behind), sample, wanted)[0].cpu().double()


def arrival_facts(
    model: Any,
    step: Step,
    contract: SamplingContract,
    parameters: Mapping[str, Tensor],
    turn: int,
    *,
    clipped: float,
) -> dict[str, Any]:
    """The gradient that the optimiser gets beside the rows' own: each pulled by a plain forward alone.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with how hard the trainer's own loss pulled at each log-probability.
        contract: under which the trainer says that it scores.
        parameters: what is trained, with the gradient that the optimiser gets.
        turn: which weights are compared, where there are too many.
        clipped: what the clip made of the gradient's length, in (0, 1].
    """
    chosen = [name for name in parameters if name in spot(parameters, turn)]
    weights = [parameters[name] for name in chosen]
    total = [torch.zeros_like(weight) for weight in weights]
    for index in range(len(step.rows)):
        _, part, sample = _sample(step, index, contract)
        pull_T = step.tokens["pull"][part].nan_to_num()
        wanted = pull_T.nonzero()[:, 0].tolist()
        if wanted:
            logprob_K = plain_logprobs(own_logits(model, 0), sample, wanted)[0]
            loss = -(pull_T[wanted].to(logprob_K) * logprob_K).sum()
            for sum_, own in zip(total, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
                if own is not None:
                    sum_ += own
    idle = [name for name, sum_ in zip(chosen, total, strict=True) if silent(sum_)]
    # others keep their place, so that the same part of them is taken
    added = dict(parameters) | {name: clipped * sum_ for name, sum_ in zip(chosen, total, strict=True)}
    expected_P = torch.cat([each.detach().reshape(-1).double().cpu() for each in spot(added, turn).values()])
    about: dict[str, Any] = pull_of(clipped * step.tokens["pull"], step.tokens["new_logprob"])
    if about["free"] > FREE:
        about["unheard"] = _unheard(model, step, contract, parameters, idle)
    counted = {"rows": len(step.rows), "device": _machine(model)}
    return beside(expected_P, flat_gradient(parameters, turn)) | counted | about


def _unheard(
    model: Any, step: Step, contract: SamplingContract, parameters: Mapping[str, Tensor], idle: Sequence[str]
) -> dict[str, Any]:
    """Which weights without a gradient some rows depend on."""
    asked: list[tuple[Any, list[int]]] = []
    pulls = [torch.zeros(0, dtype=torch.float64)]
    for index, _ in _chosen(step):
        _, part, sample = _sample(step, index, contract)
        pull_T = step.tokens["pull"][part].double().nan_to_num()
        wanted = pull_T.nonzero()[:, 0].tolist()
        if wanted:
            asked.append((sample, wanted))
            pulls.append(pull_T[wanted])

    def said() -> Tensor:
        return torch.cat([_logprobs(model, sample, wanted, 0) for sample, wanted in asked])

    return unheard(parameters, idle, said, torch.cat(pulls))


def _sample(step: Step, index: int, contract: SamplingContract) -> tuple[Row, slice, Any]:
    """A row, where its tokens are, and as much of a sample as a plain forward reads."""
    row, part = step.rows[index], slice(step.starts[index], step.starts[index] + step.lengths[index])
    ids = step.tokens["token_ids"][part]
    return row, part, SimpleNamespace(token_ids=ids, turns=row.turns, contract=contract, support=None)


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
