"""The memory budget: how many tokens fit into one micro-batch, measured before the first step.

    peak = bytes in use + gradients and moments + logits + tokens × activations per token

Activations per token are the bytes saved for the backward pass, counted on forwards of a few tokens. Samples
that do not fit are computed with recomputation: only the inputs of layers are saved.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import compress
from operator import not_
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from truing.distributed.sharded_tensors import local_bytes
from truing.distributed.sharding import computing_device, computing_dtype, in_forward
from truing.errors import ModelError, RecipeError
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import MicroBatch, hidden_before, split_micro_batches
from truing.models.forward.recompute import count_saved_bytes, layers_of
from truing.models.forward.score import CHUNK_BYTES, KEPT_BYTES, causal_model
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.utils.memory import GB, bytes_free, bytes_in_use

FREE_MEMORY_SHARE = 0.75
"""Share of the free memory that ``auto`` adds to the bytes in use."""

PROBE_LENGTHS = (33, 97)
"""Tokens of the two forwards that measure activations per token; fewer if the model has fewer positions."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a step needs: fixed, and per token of a micro-batch."""

    fixed: int
    per_token: int
    per_token_recomputed: int | None = None  # None if layers cannot be recomputed

    def peak_bytes(self, micro: MicroBatch) -> int:
        """Return the predicted peak of a micro-batch."""
        recomputed = micro.recompute and self.per_token_recomputed
        return self.fixed + micro.tokens * (recomputed or self.per_token)


@dataclass
class MemoryBudget:
    """Tokens that fit into a micro-batch; shrinks if memory runs out."""

    need: MemoryNeed
    most: int  # upper bound, ``optimizer.micro_batch_tokens``
    fits: int  # tokens that fit
    fits_recomputed: int = 0  # tokens that fit with recomputation; 0 if there is none

    @classmethod
    def from_bytes(cls, need: MemoryNeed, budget: int, max_tokens: int) -> "MemoryBudget":
        """Return what fits into ``budget`` bytes."""
        remaining = budget - need.fixed
        recomputed = need.per_token_recomputed
        if remaining < need.per_token:
            raise RecipeError(
                "optimizer.memory is less than a step needs before its first token",
                got=f"{budget / GB:.2f} GB",
                expected=f"more than {need.fixed / GB:.2f} GB",
                remedy="raise optimizer.memory, lower optimizer.micro_batch_tokens, or use a smaller model;"
                " lora needs less than training every weight",
            )
        return cls(
            need, max_tokens, remaining // need.per_token, remaining // recomputed if recomputed else 0
        )

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "MemoryBudget":
        """Return the budget that a run recorded in an event ``memory``."""
        values = {field.name: facts[field.name] for field in fields(cls)}
        values["need"] = MemoryNeed(**facts["need"])
        return cls(**values)

    def micro_batches(self, model: nn.Module, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        """Split samples into micro-batches; samples that do not fit are recomputed."""
        causal = causal_model(model)
        large = [bool(self.fits_recomputed) and len(sample) > self.fits for sample in samples]
        yield from split_micro_batches(
            causal, list(compress(samples, map(not_, large))), min(self.most, self.fits)
        )
        for micro in split_micro_batches(
            causal, list(compress(samples, large)), min(self.most, self.fits_recomputed)
        ):
            yield micro._replace(recompute=True)

    def shrink(self, failed: MicroBatch) -> None:
        """Halve the budget after a micro-batch ran out of memory; raise if it was one sample, recomputed."""
        if failed.recompute:
            self.fits_recomputed = failed.tokens // 2
        else:
            self.fits = failed.tokens // 2
        if len(failed.samples) == 1 and (failed.recompute or not self.fits_recomputed):
            raise ModelError(
                f"sample {failed.samples[0].sample_id} does not fit into memory",
                got=f"{failed.tokens} tokens",
                remedy="shorten answers or turns, train with lora, or use a smaller model",
            )


def measure_budget(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    budget: int | None,
    max_tokens: int,
    *,
    reference: bool = False,
    critic: bool = False,
    ranks: int = 1,
) -> MemoryBudget:
    """Return what fits into ``budget`` bytes, at most the free memory; None takes a share of the free memory.

    ``reference`` and ``critic`` tell whether there is one with its own copy of the weights. Ranks on a
    CPU share its free memory.
    """
    device = computing_device(model)
    in_use, free = bytes_in_use(device), bytes_free(device) // (ranks if device.type == "cpu" else 1)
    limit = in_use + int(FREE_MEMORY_SHARE * free) if budget is None else min(budget, in_use + free)
    need = measure_need(model, parameters, in_use, max_tokens, reference=reference, critic=critic)
    return MemoryBudget.from_bytes(need, limit, max_tokens)


def measure_need(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    in_use: int,
    max_tokens: int,
    *,
    reference: bool = False,
    critic: bool = False,
) -> MemoryNeed:
    """Return what a step needs, given the bytes in use before any gradient or moment exists.

    All ranks of a sharded model call this together. It is left in training mode: an adapter's dropout saves
    its masks.
    """
    training_mode(model)
    trained_bytes = sum(local_bytes(parameter) for parameter in parameters.values())
    layers = len(layers_of(causal_model(model)))
    per_token = _saved_bytes_per_token(model, recompute=False)
    per_layer = per_token // layers if layers else 0
    trunks = 1 + critic
    is_here = next(iter(parameters.values())).device.type == computing_device(model).type
    # the critic is a copy of what is trained, the reference of what computes
    itemsize = next(iter(parameters.values())).itemsize
    of_reference = itemsize if isinstance(model, PeftModel) else computing_dtype(model).itemsize
    copied_bytes = trained_bytes * critic + trained_bytes * of_reference // itemsize * reference
    # per trunk a gradient and two moments; offloaded ones are in main memory
    state_bytes = (3 * trunks * trained_bytes + copied_bytes) * is_here
    recomputed = trunks * _saved_bytes_per_token(model, recompute=True) + 3 * per_layer if layers else None
    return MemoryNeed(
        fixed=in_use + state_bytes + _logits_bytes(model, max_tokens),
        # the layer in its backward pass holds gradients too; with recomputation also its activations
        per_token=trunks * per_token + 2 * per_layer,
        per_token_recomputed=recomputed,
    )


def _logits_bytes(model: nn.Module, tokens: int) -> int:
    """Return the bytes of logits, their exponentials and gradients of ``tokens`` tokens."""
    full = 4 * causal_model(model).config.get_text_config().vocab_size * tokens
    return 2 * min(KEPT_BYTES, full) + 4 * min(CHUNK_BYTES[computing_device(model).type], full)


def _saved_bytes_per_token(model: nn.Module, *, recompute: bool) -> int:
    """Return the bytes that each further token saves for the backward pass."""
    causal, saved_bytes = causal_model(model), []
    config = causal.config.get_text_config()
    max_length = getattr(config, "max_position_embeddings", PROBE_LENGTHS[1])
    short, long = (min(length, max_length * length // PROBE_LENGTHS[1]) for length in PROBE_LENGTHS)
    for length in (short, long):
        ids = torch.arange(length) % config.vocab_size
        with count_saved_bytes(model) as count, autocast(causal):
            last = torch.tensor([[0], [length - 1]])
            in_forward(causal, partial(hidden_before, causal, [ids], last, recompute=recompute))
            saved_bytes.append(count())
    return (saved_bytes[1] - saved_bytes[0]) // (long - short)
