"""A plain forward of rows, compared with another trainer's log-probabilities."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import Logits, plain_logprobs
from truing.integrations.trl.vllm_engine import VllmEngine
from truing.models.forward.rounding_noise import device_and_precision, is_coarse, random_rounding
from truing.types.sample import SampleFacts
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import permutation

MAX_ROWS, MAX_TOKENS = 4, 512
"""Rows are checked up to this many rows and tokens; at least one row."""

EXTRA_TOKENS = 8
"""Tokens appended to a row, to compute it in another shape; earlier tokens do not attend to them."""

REPEATS = 2
"""Random roundings per row: with a router, few roundings change its choice."""

STREAMS = {"trainer": "new_logprob", "sampler": "sampler_logprob", "old": "old_logprob"}
"""What a plain forward of the policy is compared with, before the first step of a batch."""


class Differences:
    """Differences of streams from expected log-probabilities, nats: largest, its token, mean, median."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}
        self.where: dict[str, tuple[str, int]] = {}
        self.all: dict[str, list[Tensor]] = {}

    def add(self, name: str, got_K: Tensor, right_K: Tensor, row: str, places: Sequence[int]) -> None:
        """Add the differences at the tokens ``places`` of a row."""
        difference_K = (got_K - right_K).abs().nan_to_num(0.0)
        worst = int(difference_K.argmax())
        if float(difference_K[worst]) >= self.largest.get(name, -1.0):
            self.largest[name], self.where[name] = float(difference_K[worst]), (row, places[worst])
        self.all.setdefault(name, []).append(difference_K)

    def facts(self) -> dict[str, Any]:
        """Return the differences as facts of a step."""
        every = {name: torch.cat(parts) for name, parts in self.all.items()}
        mean = {name: float(difference_K.mean()) for name, difference_K in every.items()}
        median = {name: float(difference_K.median()) for name, difference_K in every.items()}
        return {**self.largest, "mean": mean, "median": median, "where": self.where}


@torch.no_grad()
def plain_facts(
    model: Any,
    step: Step,
    sampling_params: SamplingParams,
    *,
    noisy: bool,
    reference: Any = None,
    engine: VllmEngine | None = None,
) -> dict[str, Any]:
    """Return how far each stream is from a plain forward at trained tokens; call it before weights change.

    ``itself`` is the plain forward's difference from itself in another shape: the noise in float32.
    ``rounding`` is its difference from itself rounded at random: the noise in lower precision. If the trainer
    adds noise, ``rounding`` includes it. ``sampler_rounding`` is the same in the precision of an engine.

    Args:
        model: the policy, without the trainer's wrappers.
        step: with rows and the trainer's log-probabilities.
        sampling_params: of the trainer's scoring.
        noisy: whether the trainer's forward is random.
        reference: returns a context manager of the reference model; None if there is none.
        engine: that samples; None if the policy does. A precision that is not known is taken for bfloat16.
    """
    differences, device, rows = Differences(), device_and_precision(model), rows_to_check(step)
    coarse = is_coarse(device)
    for index, places in rows:
        row, part, sample = sample_of(step, index, sampling_params)
        place, plain_K = (row.sample_id, places), logprobs(model, sample, places)
        differences.add("itself", logprobs(model, sample, places, EXTRA_TOKENS), plain_K, *place)
        for seed in range(REPEATS if coarse or noisy else 0):
            with random_rounding(model, REPEATS * index + seed), _training(model) if noisy else nullcontext():
                differences.add("rounding", logprobs(model, sample, places), plain_K, *place)
        compared = {name: each for name, each in STREAMS.items() if each in step.tokens}
        if step.setup.left_out:  # the sampler's distribution is another one
            compared.pop("sampler", None)
        if engine is not None and "sampler" in compared:
            dtype = engine.dtype or torch.bfloat16
            for seed in range(REPEATS if coarse or dtype.itemsize < 4 else 0):
                with random_rounding(model, REPEATS * index + seed, dtype):
                    differences.add("sampler_rounding", logprobs(model, sample, places), plain_K, *place)
        for name, stream in compared.items():
            differences.add(name, step.tokens[stream][part][places].double(), plain_K, *place)
        if reference is not None and "ref_logprob" in step.tokens:
            with reference() as other:
                reference_K = logprobs(other, sample, places)
                random = noisy and other is model  # below an adapter, TRL keeps dropout on for the reference
                for seed in range(REPEATS if coarse or random else 0):
                    with (
                        random_rounding(other, REPEATS * index + seed),
                        _training(other) if random else nullcontext(),
                    ):
                        differences.add(
                            "reference_rounding", logprobs(other, sample, places), reference_K, *place
                        )
            differences.add(
                "reference", step.tokens["ref_logprob"][part][places].double(), reference_K, *place
            )
    tokens = sum(len(places) for _, places in rows)
    facts = {"tokens": tokens, "rows": len(rows), "device": device, "noisy": noisy} | differences.facts()
    return facts if engine is None else facts | {"engine": str(engine.dtype or "unknown")}


def logprobs(model: Any, sample: Any, places: Sequence[int], extra: int = 0) -> Tensor:
    """Return log-probabilities of tokens of a row by the model's own forward: [K] float64 on the CPU."""
    return plain_logprobs(model_logits(model, extra), sample, places)[0].cpu().double()


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """Put the model into training mode within the block; torch's RNG state is unchanged after it."""
    device = next(model.parameters()).device
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        model.train()
        try:
            yield
        finally:
            model.eval()


def sample_of(step: Step, index: int, sampling_params: SamplingParams) -> tuple[SampleFacts, slice, Any]:
    """Return a row, the slice of its tokens, and the fields of a sample that a plain forward reads."""
    row, part = step.samples[index], slice(step.starts[index], step.starts[index] + step.lengths[index])
    ids = step.tokens["token_ids"][part]
    return (
        row,
        part,
        SimpleNamespace(token_ids=ids, turns=row.turns, sampling_params=sampling_params, support=None),
    )


def rows_to_check(step: Step) -> list[tuple[int, list[int]]]:
    """Return the indices of the rows to check, drawn by the step's number, each with its trained tokens."""
    trained_N = step.tokens["policy_mask"] | step.tokens["supervised_mask"]
    rows: list[tuple[int, list[int]]] = []
    for index in permutation(len(step.samples), step.stage, step.step, "checked"):
        places = trained_N[step.part(index)].nonzero()[:, 0].tolist()
        tokens = sum(len(each) for _, each in rows)
        if rows and (len(rows) == MAX_ROWS or tokens + len(places) > MAX_TOKENS):
            break
        if places:
            rows.append((index, places))
    return rows


def model_logits(model: Any, extra: int = 0) -> Logits:
    """Return a function that runs the model on a row; ``extra`` tokens make it two longer rows."""
    device = next(model.parameters()).device

    def logits(ids: Tensor, positions: Tensor) -> Tensor:
        rows = torch.cat([ids, ids[:extra]]).expand(2 if extra else 1, -1).to(device)
        return model(input_ids=rows, logits_to_keep=positions.to(device), use_cache=False).logits[0].float()

    return logits


def has_dropout(model: nn.Module) -> bool:
    """Return whether the model has dropout in training."""
    modules: Sequence[Any] = list(model.modules())
    by_layer = any(isinstance(each, nn.Dropout) and each.p > 0 for each in modules)
    return by_layer or any(getattr(each, "attention_dropout", 0.0) > 0 for each in modules)
