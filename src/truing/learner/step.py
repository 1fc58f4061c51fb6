"""One training step: reference and critic forwards, advantages, then optimizer updates.

Each inner step computes the gradient of one minibatch, micro-batch by micro-batch, clips it and steps the
optimizer. Loss denominators are computed over the whole minibatch, so any number of micro-batches gives the
same gradient. Samples without a gradient in any loss term are not computed.

Algorithms do not appear here by name: ``Algorithm`` contains their functions.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from truing.algos import LossTerm
from truing.config import PolicyStage
from truing.distributed.ranks import Ranks
from truing.distributed.sharding import whole
from truing.learner.backward_sums import BackwardSums, check_at_optimizer, record_backward
from truing.learner.gates import skip_step_reason, skip_update_reason
from truing.learner.learner import Learner
from truing.learner.optimizer import check_loss, clip_and_step
from truing.learner.replayed_draws import replay_mask
from truing.models.critic import Critic, state_values
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import score
from truing.models.lora import training_mode
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample
from truing.utils.memory import is_out_of_memory, release_freed_memory
from truing.utils.phase_clock import phase
from truing.utils.rng import permutation, seed_of

STREAMS = ("logprob", "entropy", "raw_entropy", "token_gradient", "value_gradient", "probability_below")


@dataclass(eq=False)
class Trace:
    """Record of one inner step: its minibatch, per-token results by sample id, losses and gradient norms."""

    inner_step: int
    samples: list[Sample]
    logprob: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, NaN outside ``loss_mask``
    entropy: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, under the sampling parameters
    raw_entropy: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, of the model's distribution
    token_gradient: dict[str, Tensor] = field(default_factory=dict)  # [T] −∂loss/∂logprob
    value_gradient: dict[str, Tensor] = field(default_factory=dict)  # [T] −∂loss/∂value
    loss: dict[str, float] = field(default_factory=dict)  # by loss term, weighted
    grad_norms: list[float] = field(default_factory=list)  # policy, critic; before clipping
    skip_reason: str = ""  # "" if the optimizer stepped
    head_step: float = 0.0  # L2 norm of the change of the critic's head
    passes: list[list[MicroBatch]] = field(default_factory=list)  # of all ranks, by backward pass
    backward_counts: Counter[str] = field(default_factory=Counter)  # backward passes per sample
    # policy, critic: gradients summed over backward passes, and their comparison with the optimizer's
    backward_sums: list[BackwardSums] = field(default_factory=list[BackwardSums])
    sum_checks: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    routes: tuple[int, int] = (0, 0)  # sets of experts on record, and those that the model would not select
    # [T] probability of all ids below the sampled one; NaN where draws are not replayed
    probability_below: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def exchange(self, ranks: Ranks) -> None:
        """Add the results of the other ranks: afterwards all ranks have the same."""
        for name in STREAMS:
            setattr(self, name, ranks.gather_table(f"the exchange of {name}", getattr(self, name)))
        losses = ranks.gather("the exchange of losses", self.loss)
        self.loss = {
            name: sum(loss.get(name, 0.0) for loss in losses) for name in dict(ChainMap(*reversed(losses)))
        }
        counts = ranks.gather("the exchange of backward passes", self.backward_counts)
        self.backward_counts = Counter(name for each in counts for name in each.elements())
        for sums in self.backward_sums:
            sums.exchange(ranks)

    @property
    def tokens_computed(self) -> int:
        """Tokens of all forwards of the inner step."""
        return sum(micro.tokens for micros in self.passes for micro in micros if not micro.is_padding)


AuditHook = Callable[[Learner, Sequence[Sample]], None]
"""Audits the first minibatch of a step before any weight changes."""


def train_step(
    learner: Learner, samples: Sequence[Sample], key: tuple[object, ...], audit: AuditHook | None = None
) -> list[Trace]:
    """Train on the samples of a step; return one trace per inner step (one optimizer update each).

    Args:
        learner: policy, optimizer, reference and critic; its weights change in place.
        samples: of the step, before advantages.
        key: names the step in seeds and error texts, such as (seed, stage, step).
        audit: called with the first minibatch before its update.
    """
    if reason := skip_step_reason(samples, learner.setting):
        return [Trace(0, list(samples), skip_reason=reason)]
    learner.model.eval()  # old and reference log-probabilities are computed without dropout
    with phase("reference"):
        samples = with_reference_logprobs(with_old_logprobs(samples, learner), learner)
    with phase("value"):
        samples = with_values(samples, learner)
    samples = learner.algorithm.compute_advantages(samples, learner.setting)
    training_mode(learner.model)
    traces = []
    for inner_step, minibatch in enumerate(minibatches(samples, learner.setting.stage, key)):
        update_name = f"{'/'.join(map(str, key))}, inner step {inner_step}"
        if audit is not None and inner_step == 0:
            with phase("doctor"):
                audit(learner, minibatch)

        trace = accumulate_gradients(learner, minibatch, inner_step, (*key, inner_step), update_name)
        traces.append(trace)
        trace.skip_reason = skip_update_reason(
            minibatch, trace.logprob, learner.setting, inner_step, update_name
        )
        if trace.skip_reason:
            learner.optimizer.zero_grad(set_to_none=True)
            break

        with phase("optimizer"), _measuring_head_step(learner.critic, trace), _checking_sums(learner, trace):
            trace.grad_norms = clip_and_step(
                learner.optimizer,
                learner.optimizer_cfg.max_grad_norm,
                update_name,
                *learner.parameter_groups(),
            )
    return traces


def accumulate_gradients(
    learner: Learner, minibatch: list[Sample], inner_step: int, key: tuple[object, ...], update_name: str
) -> Trace:
    """Forward and backward over a minibatch; if memory runs out, start over with smaller micro-batches."""
    terms = learner.algorithm.terms(learner.setting)
    with_gradient = [sample for sample in minibatch if any(term.has_gradient(sample) for term in terms)]
    terms_with_denominator = [(term, term.denominator(minibatch)) for term in terms]
    while True:
        trace = Trace(inner_step, minibatch)
        torch.manual_seed(seed_of(*key, "dropout"))
        try:
            with _recording_backward(learner, trace):
                for micro_batches in learner.passes(with_gradient):
                    trace.passes.append(micro_batches)
                    for sums in trace.backward_sums:
                        sums.backward_pass += 1
                    own = micro_batches[learner.ranks.rank]
                    backward(learner, own, terms_with_denominator, trace, update_name)
            trace.exchange(learner.ranks)
            return trace
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            learner.shrink_budget(trace.passes[-1])
        learner.optimizer.zero_grad(set_to_none=True)
        release_freed_memory()


def backward(
    learner: Learner,
    micro: MicroBatch,
    terms_with_denominator: Sequence[tuple[LossTerm, float]],
    trace: Trace,
    update_name: str,
) -> None:
    """Forward and backward of one micro-batch: add its gradient to ``.grad`` and its results to the trace."""
    batch = collate(micro.samples)
    with phase("forward"):
        scores = score(
            learner.model,
            batch,
            loss_mask(batch),
            critic=learner.critic,
            recompute=micro.recompute,
            mass_below_mask_BT=replay_mask(learner, trace.samples, batch) if trace.inner_step == 0 else None,
        )
        scores.logprob.retain_grad()
        if scores.value is not None:
            scores.value.retain_grad()
        losses = {
            term.name: term.weight * term.loss(batch, scores, denominator)
            for term, denominator in terms_with_denominator
        }
    learner.ranks.together("the losses of a micro-batch", lambda: check_loss(losses, update_name))
    with phase("backward"):
        loss = torch.stack(list(losses.values())).sum()
        (loss * 0 if micro.is_padding else loss).backward()
    if not micro.is_padding:
        _add_micro_batch(trace, micro.samples, scores, losses)


@torch.no_grad()
def with_old_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with old log-probabilities recomputed by the trainer, if ``correction.method`` is on.

    With ``correction.method = "off"`` the sampler's log-probabilities stay the old policy's.
    """
    if learner.setting.correction.method == "off" or not isinstance(learner.setting.stage, PolicyStage):
        return list(samples)
    logprobs = _scored(samples, learner, partial(score, learner.model))
    return [
        replace(sample, old_logprob=logprobs[sample.sample_id], old_source="recomputed")
        if sample.sample_id in logprobs
        else sample
        for sample in samples
    ]


@torch.no_grad()
def with_reference_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with the reference's log-probabilities; unchanged if the stage has no reference."""
    if learner.reference is None:
        return list(samples)
    logprobs = _scored(samples, learner, learner.reference.score)
    return [
        replace(sample, ref_logprob=logprobs[sample.sample_id]) if sample.sample_id in logprobs else sample
        for sample in samples
    ]


def _scored(
    samples: Sequence[Sample], learner: Learner, score_batch: Callable[[Batch, Tensor], Scores]
) -> dict[str, Tensor]:
    """Return the log-probabilities of sampled tokens by sample: [T], NaN elsewhere."""
    logprobs: dict[str, Tensor] = {}
    for micro in learner.micro_batches([sample for sample in samples if sample.kl_mask.any()]):
        batch = collate(micro.samples)
        logprob_BT = score_batch(batch, batch.kl_mask).logprob.cpu()
        for b, sample in enumerate(micro.samples):
            logprobs[sample.sample_id] = torch.where(sample.kl_mask, logprob_BT[b, : len(sample)], torch.nan)
    return learner.ranks.gather_table("the exchange of log-probabilities", logprobs)


def with_values(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with the critic's value before each token, and after the end of truncated ones."""
    if learner.critic is None:
        return list(samples)
    values: dict[str, Tensor] = {}
    for micro in learner.micro_batches([row for row in samples if row.value_mask.any() or row.truncated]):
        of_rows = state_values(learner.critic, learner.model, micro.samples)
        values |= {row.sample_id: value for row, value in zip(micro.samples, of_rows, strict=True)}
    values = learner.ranks.gather_table("the exchange of values", values)
    return [
        replace(row, value=values[row.sample_id][:-1], bootstrap_value=float(values[row.sample_id][-1]))
        if row.sample_id in values
        else row
        for row in samples
    ]


@contextmanager
def _recording_backward(learner: Learner, trace: Trace) -> Iterator[None]:
    """Sum the gradients that backward passes within the block produce, for policy and critic."""
    with ExitStack() as stack:
        trace.backward_sums = [
            stack.enter_context(record_backward(group)) for group in learner.computed_groups()
        ]
        yield


@contextmanager
def _checking_sums(learner: Learner, trace: Trace) -> Iterator[None]:
    """Compare those sums with the gradients that the optimizer gets within the block."""
    with ExitStack() as stack:
        pairs = zip(learner.parameter_groups(), trace.backward_sums, strict=True)
        trace.sum_checks = [
            stack.enter_context(check_at_optimizer(learner.optimizer, group, sums)) for group, sums in pairs
        ]
        yield


@contextmanager
def _measuring_head_step(critic: Critic | None, trace: Trace) -> Iterator[None]:
    """Measure how far the critic's head moves within the block."""
    if critic is None:
        yield
        return
    initial = [whole(parameter.detach()).clone() for parameter in critic.head.parameters()]
    yield
    distances = [
        (whole(after.detach()) - before).norm()
        for after, before in zip(critic.head.parameters(), initial, strict=True)
    ]
    trace.head_step = float(torch.stack(distances).norm())


def minibatches(samples: Sequence[Sample], cfg: object, key: tuple[object, ...]) -> Iterator[list[Sample]]:
    """Yield the minibatch of each inner step: ``inner_epochs`` passes over the shuffled samples.

    With one minibatch per epoch, samples keep their order. Stages without inner epochs have one minibatch.
    """
    epochs, count = (cfg.inner_epochs, cfg.minibatches) if isinstance(cfg, PolicyStage) else (1, 1)
    for epoch in range(epochs):
        order = permutation(len(samples), *key, "minibatches", epoch) if count > 1 else range(len(samples))
        for first in range(count):
            minibatch = [samples[i] for i in list(order)[first::count]]
            if minibatch:
                yield minibatch


def loss_mask(rows: Sample | Batch) -> Tensor:
    """Return the tokens that some loss term reads: [T] bool of a sample, [B, T] of a batch."""
    return rows.policy_mask | rows.kl_mask | rows.supervised_mask


def _add_micro_batch(
    trace: Trace, samples: Sequence[Sample], scores: Scores, losses: dict[str, Tensor]
) -> None:
    """Add a micro-batch to the trace: per-token streams, NaN where not scored, and loss terms."""
    streams = {name: getattr(scores, name).detach() for name in ("logprob", "entropy", "raw_entropy")}
    gradient_BT = scores.logprob.grad  # None if no loss term reads log-probabilities
    streams["token_gradient"] = torch.zeros_like(scores.logprob) if gradient_BT is None else -gradient_BT
    trace.backward_counts.update(sample.sample_id for sample in samples)
    trace.routes = trace.routes[0] + scores.routes[0], trace.routes[1] + scores.routes[1]
    for name, stream_BT in streams.items():
        for b, sample in enumerate(samples):
            values = stream_BT[b, : len(sample)].cpu()
            recorded_T = loss_mask(sample)
            if name == "token_gradient":  # a gradient outside the mask is a fault that the doctor must see
                recorded_T = recorded_T | (values != 0)
            getattr(trace, name)[sample.sample_id] = torch.where(recorded_T, values, torch.nan)
    if scores.mass_below is not None:
        for b, sample in enumerate(samples):
            trace.probability_below[sample.sample_id] = scores.mass_below[b, : len(sample)].cpu()
    if scores.value is not None and scores.value.grad is not None:
        for b, sample in enumerate(samples):
            trace.value_gradient[sample.sample_id] = -scores.value.grad[b, : len(sample)].cpu()
    for name, value in losses.items():
        trace.loss[name] = trace.loss.get(name, 0.0) + value.item()
