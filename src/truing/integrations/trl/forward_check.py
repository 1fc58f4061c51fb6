"""A plain forward of rows beside what another trainer's own said of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.evidence import Row, Step
from truing.doctor.oracle.forward import Logits, plain_logprobs
from truing.models.forward.rounding_noise import device_and_precision, random_rounding
from truing.types.sampling_params import SamplingParams

MAX_ROWS, MAX_TOKENS = 4, 512
"""Rows are looked at until they have so many tokens; at least one."""

EXTRA_TOKENS = 8
"""Tokens that are put behind a row to compute it in another shape; no token before sees them."""

REPEATS = 2
"""Times that a row is rounded at random: where a router chooses, one rounding in many changes the choice."""

STREAMS = {"trainer": "new_logprob", "sampler": "sampler_logprob", "old": "old_logprob"}
"""What a plain forward of the policy is compared with, before the first update of a batch."""


class Differences:
    """How far streams are from what is right: largest, where that is, mean and median, nats."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}
        self.where: dict[str, tuple[str, int]] = {}
        self.all: dict[str, list[Tensor]] = {}

    def add(self, name: str, got_K: Tensor, right_K: Tensor, row: str, wanted: Sequence[int]) -> None:
        """Compare the tokens ``wanted`` of a row."""
        apart_K = (got_K - right_K).abs().nan_to_num(0.0)
        worst = int(apart_K.argmax())
        if float(apart_K[worst]) >= self.largest.get(name, -1.0):
            self.largest[name], self.where[name] = float(apart_K[worst]), (row, wanted[worst])
        self.all.setdefault(name, []).append(apart_K)

    def facts(self) -> dict[str, Any]:
        """As an update has them."""
        every = {name: torch.cat(parts) for name, parts in self.all.items()}
        mean = {name: float(apart_K.mean()) for name, apart_K in every.items()}
        median = {name: float(apart_K.median()) for name, apart_K in every.items()}
        return {**self.largest, "mean": mean, "median": median, "where": self.where}


@torch.no_grad()
def plain_facts(
    model: Any, step: Step, sampling_params: SamplingParams, *, noisy: bool, reference: Any = None
) -> dict[str, Any]:
    """How far each stream is from a plain forward at tokens under the loss; weights must not have moved yet.

    ``itself`` is how far the plain forward is from itself in another shape: what is normal in float32. In
    another precision that is ``rounding``: how far it is from itself rounded at random. Where the trainer
    adds noise, ``rounding`` is with that noise.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with what the trainer's forward said.
        contract: under which the trainer says that it scores.
        noisy: whether the trainer's forward is a draw.
        reference: gives the reference model within a block; None where there is none.
    """
    found, device, rows = Differences(), device_and_precision(model), rows_to_check(step)
    coarse = device != "cpu"
    for index, wanted in rows:
        row, part, sample = sample_of(step, index, sampling_params)
        place, plain_K = (row.sample_id, wanted), logprobs(model, sample, wanted)
        found.add("itself", logprobs(model, sample, wanted, EXTRA_TOKENS), plain_K, *place)
        for seed in range(REPEATS if coarse or noisy else 0):
            with random_rounding(model, REPEATS * index + seed), _training(model) if noisy else nullcontext():
                found.add("rounding", logprobs(model, sample, wanted), plain_K, *place)
        for name, stream in STREAMS.items():
            if stream in step.tokens:
                found.add(name, step.tokens[stream][part][wanted].double(), plain_K, *place)
        if reference is not None and "ref_logprob" in step.tokens:
            with reference() as other:
                theirs_K = logprobs(other, sample, wanted)
                drawn = noisy and other is model  # below an adapter TRL drops what it drops in training
                for seed in range(REPEATS if coarse or drawn else 0):
                    with (
                        random_rounding(other, REPEATS * index + seed),
                        _training(other) if drawn else nullcontext(),
                    ):
                        found.add("reference_rounding", logprobs(other, sample, wanted), theirs_K, *place)
            found.add("reference", step.tokens["ref_logprob"][part][wanted].double(), theirs_K, *place)
    tokens = sum(len(wanted) for _, wanted in rows)
    return {"tokens": tokens, "rows": len(rows), "device": device, "noisy": noisy} | found.facts()


def logprobs(model: Any, sample: Any, wanted: Sequence[int], behind: int = 0) -> Tensor:
    """Of tokens of a row, by the model's own forward: [K] float64 on the CPU."""
    return plain_logprobs(model_logits(model, behind), sample, wanted)[0].cpu().double()


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """The model as it is in training, with its noise; torch's random numbers are left alone."""
    device = next(model.parameters()).device
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        model.train()
        try:
            yield
        finally:
            model.eval()


def sample_of(step: Step, index: int, sampling_params: SamplingParams) -> tuple[Row, slice, Any]:
    """A row, where its tokens are, and as much of a sample as a plain forward reads."""
    row, part = step.rows[index], slice(step.starts[index], step.starts[index] + step.lengths[index])
    ids = step.tokens["token_ids"][part]
    return row, part, SimpleNamespace(token_ids=ids, turns=row.turns, sampling_params=sampling_params, support=None)


def rows_to_check(step: Step) -> list[tuple[int, list[int]]]:
    """Rows to look at, each with its tokens under a loss."""
    trained_N = step.tokens["policy_mask"] | step.tokens["supervised_mask"]
    rows: list[tuple[int, list[int]]] = []
    for index, (_, _, part) in enumerate(step.slices()):
        wanted = trained_N[part].nonzero()[:, 0].tolist()
        tokens = sum(len(each) for _, each in rows)
        if rows and (len(rows) == MAX_ROWS or tokens + len(wanted) > MAX_TOKENS):
            break
        if wanted:
            rows.append((index, wanted))
    return rows


def model_logits(model: Any, behind: int = 0) -> Logits:
    """The model's own forward of one row; ``behind`` more tokens make it two rows of another length."""
    device = next(model.parameters()).device

    def logits(ids: Tensor, places: Tensor) -> Tensor:
        rows = torch.cat([ids, ids[:behind]]).expand(2 if behind else 1, -1).to(device)
        return model(input_ids=rows, logits_to_keep=places.to(device), use_cache=False).logits[0].float()

    return logits


def has_dropout(model: nn.Module) -> bool:
    """Whether anything is dropped in training."""
    modules: Sequence[Any] = list(model.modules())
    by_layer = any(isinstance(each, nn.Dropout) and each.p > 0 for each in modules)
    return by_layer or any(getattr(each, "attention_dropout", 0.0) > 0 for each in modules)
