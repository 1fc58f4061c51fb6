"""How many tokens a step computes at once: as many as a budget of memory allows, measured before it runs.

    peak = what is held anyway + gradients and moments + logits + tokens × what a token keeps

What a token keeps from the forward to the backward pass is counted on a forward of a few tokens. Samples
that fit no other way keep the inputs of layers alone, and layers are computed twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from operator import not_
from typing import Any

import torch
from torch import nn

from truing.errors import ModelError, RecipeError
from truing.models.forward.hidden_states import MicroBatch, hidden_before, split_micro_batches
from truing.models.forward.recompute import count_saved_bytes, layers_of
from truing.models.forward.score import CHUNK_BYTES, KEPT_BYTES, autocast, causal_model
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.utils.memory import GB, bytes_free, bytes_in_use

FREE_MEMORY_SHARE = 0.75
"""Of the memory that is free: what ``auto`` takes, beside what is held already."""

PROBE_LENGTHS = (33, 97)
"""Tokens of the forwards on which is counted what a token keeps; fewer where a model has fewer positions."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a step needs: whatever it computes, and for each token of a micro-batch."""

    fixed: int
    per_token: int
    per_token_recomputed: int | None = None  # None where layers cannot be computed twice

    def peak_bytes(self, micro: MicroBatch) -> int:
        """What a micro-batch comes to."""
        recomputed = micro.recompute and self.per_token_recomputed
        return self.fixed + micro.tokens * (recomputed or self.per_token)


@dataclass
class MemoryBudget:
    """What fits. It shrinks where memory runs out all the same."""

    need: MemoryNeed
    most: int  # tokens of a micro-batch, even where more would fit
    fits: int  # tokens that fit
    fits_recomputed: int = 0  # tokens that fit where layers are computed twice

    @classmethod
    def from_bytes(cls, need: MemoryNeed, budget: int, most: int) -> "MemoryBudget":
        """What fits into so many bytes."""
        left = budget - need.fixed
        twice = need.per_token_recomputed
        if left < need.per_token:
            raise RecipeError(
                "optimizer.memory is less than a step holds, whatever it computes",
                got=f"{budget / GB:.2f} GB",
                expected=f"more than {need.fixed / GB:.2f} GB",
                remedy="give it more, lower optimizer.micro_batch_tokens, or take a smaller model; lora needs"
                " less than training every weight",
            )
        return cls(need, most, left // need.per_token, left // twice if twice else 0)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "MemoryBudget":
        """From what a run recorded of it."""
        named = {field.name: facts[field.name] for field in fields(cls)}
        return cls(**named | {"need": MemoryNeed(**facts["need"])})

    def micro_batches(self, model: nn.Module, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        """Samples in micro-batches; layers are computed twice for those that do not fit."""
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
        """Memory ran out on a micro-batch: half of it fits. An error for one sample, even computed twice."""
        if failed.recompute:
            self.fits_recomputed = failed.tokens // 2
        else:
            self.fits = failed.tokens // 2
        if len(failed.samples) == 1 and (failed.recompute or not self.fits_recomputed):
            raise ModelError(
                f"there is no memory to train on sample {failed.samples[0].sample_id}",
                got=f"{failed.tokens} tokens",
                remedy="shorten answers or turns, train with lora, or take a smaller model",
            )


def measure_budget(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    budget: int | None,
    max_tokens: int,
    *,
    reference: bool = False,
    critic: bool = False,
) -> MemoryBudget:
    """What fits into a budget (bytes), and into memory; without one, into a share of what is free now.

    ``reference`` and ``critic``: whether there is one with weights of its own beside the policy's.
    """
    device = causal_model(model).device
    now, more = bytes_in_use(device), bytes_free(device)
    within = now + int(FREE_MEMORY_SHARE * more) if budget is None else min(budget, now + more)
    need = measure_need(model, parameters, now, max_tokens, reference=reference, critic=critic)
    return MemoryBudget.from_bytes(need, within, max_tokens)


def measure_need(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    now: int,
    most: int,
    *,
    reference: bool = False,
    critic: bool = False,
) -> MemoryNeed:
    """What steps on these parameters need beside the bytes held now, with no gradient and no moment yet.

    The model is left in training mode: an adapter's dropout keeps its masks.
    """
    training_mode(model)
    trained = sum(parameter.nbytes for parameter in parameters.values())
    layers = len(layers_of(causal_model(model)))
    per_token = _kept_per_token(model, recompute=False)
    at_once = per_token // layers if layers else 0  # what one layer keeps
    trunks, copies = 1 + critic, reference + critic
    twice = trunks * _kept_per_token(model, recompute=True) + 3 * at_once if layers else None
    return MemoryNeed(
        fixed=now + (3 * trunks + copies) * trained + _logits(model, most),  # a gradient and two moments
        # while a layer goes backward, its gradients and what they are made from; recomputed, all it keeps
        per_token=trunks * per_token + 2 * at_once,
        per_token_recomputed=twice,
    )


def _logits(model: nn.Module, most: int) -> int:
    """What scores of so many tokens hold: tables of logits, their exponentials and gradients."""
    whole = 4 * causal_model(model).config.get_text_config().vocab_size * most
    return 2 * min(KEPT_BYTES, whole) + 4 * min(CHUNK_BYTES, whole)


def _kept_per_token(model: nn.Module, *, recompute: bool) -> int:
    """Bytes that one token more keeps for the backward pass."""
    causal, kept = causal_model(model), []
    config = causal.config.get_text_config()
    most = getattr(config, "max_position_embeddings", PROBE_LENGTHS[1])
    few, many = (min(length, most * length // PROBE_LENGTHS[1]) for length in PROBE_LENGTHS)
    for length in (few, many):
        ids = torch.arange(length) % config.vocab_size
        with count_saved_bytes(model) as count, autocast(causal.device):
            hidden_before(causal, [ids], torch.tensor([[0], [length - 1]]), recompute=recompute)
            kept.append(count())
    return (kept[1] - kept[0]) // (many - few)
