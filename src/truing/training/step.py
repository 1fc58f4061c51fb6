"""One update, top to bottom: samples, annotate, credit, forward and backward, clip and step, record.

A sample on which no term of the loss has a gradient is not computed; where none has, nothing is updated.

Algorithms do not appear here by name: they are functions in ``Algorithm``. Loss denominators are
computed over the whole minibatch, so any number of micro-batches gives the gradient of one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from truing.algos import Algorithm
from truing.clock import phase
from truing.config import OptimizerConfig
from truing.models.forward import split
from truing.models.reference import Reference
from truing.models.score import causal_model, score
from truing.rng import permutation
from truing.training.collate import collate
from truing.training.optimizer import check_loss, clip_and_step
from truing.types import Batch, Sample, Scores


@dataclass(frozen=True, eq=False)
class Learner:
    """What an update works on; the weights and the optimiser's state are the only things it changes."""

    model: nn.Module
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    reference: Reference | None
    algorithm: Algorithm
    cfg: Any  # the stage's table
    optimizer_cfg: OptimizerConfig


@dataclass(eq=False)
class Trace:
    """What the forwards of one minibatch said, by sample id, and what the update did."""

    inner_step: int
    samples: list[Sample]
    logprob: dict[str, Tensor] = field(default_factory=dict)
    entropy: dict[str, Tensor] = field(default_factory=dict)
    raw_entropy: dict[str, Tensor] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    computed: int = 0  # tokens of its forwards


def train_step(learner: Learner, samples: Sequence[Sample], key: tuple[object, ...]) -> list[Trace]:
    """Update the policy on samples; one trace per inner step, each with its samples as trained on."""
    with phase("reference"):
        samples = annotate(samples, learner)
    samples = learner.algorithm.credit(samples, learner.cfg)
    causal = causal_model(learner.model)
    traces = []
    for inner_step, minibatch in enumerate(minibatches(samples, learner.cfg, key)):
        where = f"{'/'.join(map(str, key))}, inner step {inner_step}"
        trace = Trace(inner_step, minibatch)
        denominator = learner.algorithm.denominator(minibatch, learner.cfg)
        pulling = [sample for sample in minibatch if learner.algorithm.pulls(sample, learner.cfg)]
        for micro in split(causal, pulling, learner.optimizer_cfg.micro_batch_tokens):
            batch = collate(micro.samples)
            trace.computed += micro.tokens
            with phase("forward"):
                scores = score(learner.model, batch, trained(batch))
                parts = learner.algorithm.loss(batch, scores, learner.cfg, denominator)
            check_loss(parts, where)
            with phase("backward"):
                torch.stack(list(parts.values())).sum().backward()
            _keep(trace, micro.samples, scores, parts)
        with phase("optimizer"):
            trace.grad_norm = clip_and_step(
                learner.optimizer, learner.parameters, learner.optimizer_cfg.max_grad_norm, where
            )
        traces.append(trace)
    return traces


@torch.no_grad()
def annotate(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Samples with the reference's log-probabilities, where a term of the loss needs them."""
    if learner.reference is None:
        return list(samples)
    annotated: dict[str, Sample] = {}
    compared = [sample for sample in samples if sample.kl_mask.any()]
    for micro in split(causal_model(learner.model), compared, learner.optimizer_cfg.micro_batch_tokens):
        batch = collate(micro.samples)
        logprob_BT = learner.reference.score(batch, batch.kl_mask).logprob.cpu()
        for b, sample in enumerate(micro.samples):
            ref = torch.where(sample.kl_mask, logprob_BT[b, : len(sample)], torch.nan)
            annotated[sample.sample_id] = replace(sample, ref_logprob=ref)
    return [annotated.get(sample.sample_id, sample) for sample in samples]


def minibatches(samples: Sequence[Sample], cfg: Any, key: tuple[object, ...]) -> Iterator[list[Sample]]:
    """The samples of each inner step: all of them once, or shuffled shares over several epochs."""
    epochs, shares = getattr(cfg, "inner_epochs", 1), getattr(cfg, "minibatches", 1)
    for epoch in range(epochs):
        order = permutation(len(samples), *key, "minibatches", epoch) if shares > 1 else range(len(samples))
        for share in range(shares):
            chosen = [samples[i] for i in list(order)[share::shares]]
            if chosen:
                yield chosen


def trained(rows: Sample | Batch) -> Tensor:
    """The tokens that some term of the loss reads: [T] of a sample, [B, T] of a batch."""
    return rows.policy_mask | rows.kl_mask | rows.supervised_mask


def _keep(trace: Trace, samples: Sequence[Sample], scores: Scores, parts: dict[str, Tensor]) -> None:
    """Add a micro-batch to the trace: per-token streams, NaN where not scored, and terms of the loss."""
    for b, sample in enumerate(samples):
        for stream in ("logprob", "entropy", "raw_entropy"):
            values = getattr(scores, stream)[b, : len(sample)].detach().cpu()
            getattr(trace, stream)[sample.sample_id] = torch.where(trained(sample), values, torch.nan)
    for name, value in parts.items():
        trace.loss[name] = trace.loss.get(name, 0.0) + value.item()
