"""One update, top to bottom: samples, reference, values, credit, forward and backward, clip and step, record.

A sample on which no term of the loss has a gradient is not computed; where none has, nothing is updated.

Algorithms do not appear here by name: they are functions in ``Algorithm``. Loss denominators are
computed over the whole minibatch, so any number of micro-batches gives the gradient of one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from truing.algos import LossTerm
from truing.config import PolicyStage
from truing.learner.backward_sums import BackwardSums, check_at_optimizer, record_backward
from truing.learner.gates import skip_step_reason, skip_update_reason
from truing.learner.learner import Learner
from truing.learner.optimizer import check_loss, clip_and_step
from truing.models.critic import Critic, state_values
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import causal_model, score
from truing.models.lora import training_mode
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample
from truing.utils.memory import is_out_of_memory, release_freed_memory
from truing.utils.phase_clock import phase
from truing.utils.rng import permutation, seed_of


@dataclass(eq=False)
class Trace:
    """What the forwards of one minibatch said, by sample id, and what the update did."""

    inner_step: int
    samples: list[Sample]
    logprob: dict[str, Tensor] = field(default_factory=dict)
    entropy: dict[str, Tensor] = field(default_factory=dict)
    raw_entropy: dict[str, Tensor] = field(default_factory=dict)
    token_gradient: dict[str, Tensor] = field(default_factory=dict)
    value_gradient: dict[str, Tensor] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    grad_norms: list[float] = field(default_factory=list)  # of the policy, and of the critic
    skip_reason: str = ""  # why no update was made
    head_step: float = 0.0  # how far the update moved the critic's head
    micro_batches: list[MicroBatch] = field(default_factory=list)
    backward_counts: Counter[str] = field(
        default_factory=Counter
    )  # how often each row went forward and backward
    backward_sums: list[BackwardSums] = field(
        default_factory=list[BackwardSums]
    )  # gradients, of the policy and of the critic
    sum_checks: list[list[dict[str, Any]]] = field(
        default_factory=list[list[dict[str, Any]]]
    )  # of each of those
    probability_below: dict[str, Tensor] = field(
        default_factory=dict[str, Tensor]
    )  # P(lower ids), NaN where nobody asked

    @property
    def tokens_computed(self) -> int:
        """Tokens of its forwards."""
        return sum(micro.tokens for micro in self.micro_batches)


AuditHook = Callable[[Learner, Sequence[Sample]], None]
"""Looks at the samples of the first update as they are trained on, before any weight moves."""


def train_step(
    learner: Learner, samples: Sequence[Sample], key: tuple[object, ...], audit: AuditHook | None = None
) -> list[Trace]:
    """Update the policy on samples; one trace per inner step, each with its samples as trained on."""
    if why := skip_step_reason(samples, learner.setting):
        return [Trace(0, list(samples), skip_reason=why)]
    learner.model.eval()  # no dropout in what is compared with
    with phase("reference"):
        samples = with_reference_logprobs(with_old_logprobs(samples, learner), learner)
    with phase("value"):
        samples = with_values(samples, learner)
    samples = learner.algorithm.compute_advantages(samples, learner.setting)
    training_mode(learner.model)
    traces = []
    for inner_step, minibatch in enumerate(minibatches(samples, learner.setting.stage, key)):
        where = f"{'/'.join(map(str, key))}, inner step {inner_step}"
        if audit is not None and inner_step == 0:
            with phase("doctor"):
                audit(learner, minibatch)
        trace = accumulate_gradients(learner, minibatch, inner_step, (*key, inner_step), where)
        traces.append(trace)
        trace.skip_reason = skip_update_reason(minibatch, trace.logprob, learner.setting, inner_step, where)
        if trace.skip_reason:
            learner.optimizer.zero_grad(set_to_none=True)
            break
        with phase("optimizer"), _measuring_head_step(learner.critic, trace), _checking_sums(learner, trace):
            trace.grad_norms = clip_and_step(
                learner.optimizer, learner.optimizer_cfg.max_grad_norm, where, *learner.parameter_groups()
            )
    return traces


def accumulate_gradients(
    learner: Learner, minibatch: list[Sample], inner_step: int, key: tuple[object, ...], where: str
) -> Trace:
    """The gradient of a minibatch; begun again in smaller parts where memory runs out."""
    terms = learner.algorithm.terms(learner.setting)
    pulling = [sample for sample in minibatch if any(term.has_gradient(sample) for term in terms)]
    divided = [(term, term.denominator(minibatch)) for term in terms]
    while True:
        trace = Trace(inner_step, minibatch)
        torch.manual_seed(seed_of(*key, "dropout"))
        try:
            with _recording_backward(learner, trace):
                for micro in learner.memory_budget.micro_batches(learner.model, pulling):
                    trace.micro_batches.append(micro)
                    for handed in trace.backward_sums:
                        handed.backward_pass += 1
                    backward(learner, micro, divided, trace, where)
            return trace
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            learner.memory_budget.shrink(trace.micro_batches[-1])
        learner.optimizer.zero_grad(set_to_none=True)
        release_freed_memory()


def backward(
    learner: Learner, micro: MicroBatch, divided: Sequence[tuple[LossTerm, float]], trace: Trace, where: str
) -> None:
    """Add the gradient of a micro-batch; each term comes with its denominator."""
    batch = collate(micro.samples)
    with phase("forward"):
        asked = replay_mask(learner, trace, batch)
        about: dict[str, Any] = {"critic": learner.critic, "recompute": micro.recompute, "below_BT": asked}
        scores = score(learner.model, batch, loss_mask(batch), **about)
        scores.logprob.retain_grad()
        if scores.value is not None:
            scores.value.retain_grad()
        parts = {term.name: term.weight * term.loss(batch, scores, divisor) for term, divisor in divided}
    check_loss(parts, where)
    with phase("backward"):
        torch.stack(list(parts.values())).sum().backward()
    _add_micro_batch(trace, micro.samples, scores, parts)


@torch.no_grad()
def with_old_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Samples with the trainer's own log-probabilities before any update, where the sampler's are corrected.

    Where they are not, what the sampler recorded is the old policy, and nothing is computed.
    """
    if learner.setting.correction.method == "off" or not isinstance(learner.setting.stage, PolicyStage):
        return list(samples)
    scored: dict[str, Sample] = {}
    drawn = [sample for sample in samples if sample.kl_mask.any()]
    for micro in learner.memory_budget.micro_batches(learner.model, drawn):
        batch = collate(micro.samples)
        logprob_BT = score(learner.model, batch, batch.kl_mask).logprob.cpu()
        for b, sample in enumerate(micro.samples):
            old = torch.where(sample.kl_mask, logprob_BT[b, : len(sample)], torch.nan)
            scored[sample.sample_id] = replace(sample, old_logprob=old, old_source="recomputed")
    return [scored.get(sample.sample_id, sample) for sample in samples]


@torch.no_grad()
def with_reference_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Samples with the reference's log-probabilities, where credit or a term of the loss needs them."""
    if learner.reference is None:
        return list(samples)
    annotated: dict[str, Sample] = {}
    compared = [sample for sample in samples if sample.kl_mask.any()]
    for micro in learner.memory_budget.micro_batches(learner.model, compared):
        batch = collate(micro.samples)
        logprob_BT = learner.reference.score(batch, batch.kl_mask).logprob.cpu()
        for b, sample in enumerate(micro.samples):
            ref = torch.where(sample.kl_mask, logprob_BT[b, : len(sample)], torch.nan)
            annotated[sample.sample_id] = replace(sample, ref_logprob=ref)
    return [annotated.get(sample.sample_id, sample) for sample in samples]


def with_values(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Samples with what the critic expects before each choice, and after a truncated end."""
    if learner.critic is None:
        return list(samples)
    valued: dict[str, Sample] = {}
    chosen = [sample for sample in samples if sample.value_mask.any() or sample.truncated]
    for micro in learner.memory_budget.micro_batches(learner.model, chosen):
        values = state_values(learner.critic, learner.model, micro.samples)
        for sample, value in zip(micro.samples, values, strict=True):
            valued[sample.sample_id] = replace(sample, value=value[:-1], bootstrap_value=float(value[-1]))
    return [valued.get(sample.sample_id, sample) for sample in samples]


@contextmanager
def _recording_backward(learner: Learner, trace: Trace) -> Iterator[None]:
    """Note what backward passes within the block hand over, to the policy and to the critic."""
    with ExitStack() as stack:
        trace.backward_sums = [
            stack.enter_context(record_backward(part)) for part in learner.parameter_groups()
        ]
        yield


@contextmanager
def _checking_sums(learner: Learner, trace: Trace) -> Iterator[None]:
    """Compare it with what the optimiser gets within the block."""
    with ExitStack() as stack:
        parts = zip(learner.parameter_groups(), trace.backward_sums, strict=True)
        trace.sum_checks = [
            stack.enter_context(check_at_optimizer(learner.optimizer, *each)) for each in parts
        ]
        yield


@contextmanager
def _measuring_head_step(critic: Critic | None, trace: Trace) -> Iterator[None]:
    """Note how far the block moves the critic's head."""
    if critic is None:
        yield
        return
    before = [parameter.detach().clone() for parameter in critic.head.parameters()]
    yield
    moved = [(now.detach() - was).norm() for now, was in zip(critic.head.parameters(), before, strict=True)]
    trace.head_step = float(torch.stack(moved).norm())


def minibatches(samples: Sequence[Sample], cfg: object, key: tuple[object, ...]) -> Iterator[list[Sample]]:
    """The samples of each inner step: all of them once, or shuffled shares over several epochs."""
    epochs, shares = (cfg.inner_epochs, cfg.minibatches) if isinstance(cfg, PolicyStage) else (1, 1)
    for epoch in range(epochs):
        order = permutation(len(samples), *key, "minibatches", epoch) if shares > 1 else range(len(samples))
        for share in range(shares):
            chosen = [samples[i] for i in list(order)[share::shares]]
            if chosen:
                yield chosen


def loss_mask(rows: Sample | Batch) -> Tensor:
    """The tokens that some term of the loss reads: [T] of a sample, [B, T] of a batch."""
    return rows.policy_mask | rows.kl_mask | rows.supervised_mask


MAX_REPLAYED_ENTRIES = 16_000_000
"""Entries of distributions that an update replays draws from, some 20 ms: 325 tokens over 49,152 ids."""


def replay_mask(learner: Learner, trace: Trace, batch: Batch) -> Tensor | None:
    """Some of the sampled tokens whose draws are replayed: [B, T] bool; None where none is.

    Only before the first update are the weights those that drew, and only in float32 are they so to the last
    digits. All tokens of a step together are so many that it takes little of its time; the same place of a
    rollout is asked again in another step.
    """
    causal = causal_model(learner.model)
    policy = isinstance(learner.setting.stage, PolicyStage)
    if trace.inner_step or not policy or causal.device.type != "cpu" or _has_dropout(learner.model):
        return None
    tokens = sum(int(sample.kl_mask.sum()) for sample in trace.samples)
    every = -(-tokens * causal.config.get_text_config().vocab_size // MAX_REPLAYED_ENTRIES) or 1
    offset = seed_of(trace.samples[0].sample_id, "replayed") % every
    return batch.kl_mask & (
        (batch.kl_mask.flatten().cumsum(0).view(batch.kl_mask.shape) + offset) % every == 0
    )


def _has_dropout(model: nn.Module) -> bool:
    """Whether dropout is on: then a forward is not that of the weights."""
    return any(
        isinstance(module, nn.Dropout) and module.training and module.p > 0 for module in model.modules()
    )


def _add_micro_batch(
    trace: Trace, samples: Sequence[Sample], scores: Scores, parts: dict[str, Tensor]
) -> None:
    """Add a micro-batch to the trace: per-token streams, NaN where not scored, and terms of the loss."""
    streams = {name: getattr(scores, name).detach() for name in ("logprob", "entropy", "raw_entropy")}
    pulled = scores.logprob.grad  # None where no term of the loss reads log-probabilities
    streams["token_gradient"] = torch.zeros_like(scores.logprob) if pulled is None else -pulled
    trace.backward_counts.update(sample.sample_id for sample in samples)
    for name, stream_BT in streams.items():
        for b, sample in enumerate(samples):
            values = stream_BT[b, : len(sample)].cpu()
            known = loss_mask(sample)
            if name == "token_gradient":  # keep it outside the mask too: the doctor must see it there
                known = known | (values != 0)
            getattr(trace, name)[sample.sample_id] = torch.where(known, values, torch.nan)
    if scores.mass_below is not None:
        for b, sample in enumerate(samples):
            trace.probability_below[sample.sample_id] = scores.mass_below[b, : len(sample)].cpu()
    if scores.value is not None and scores.value.grad is not None:
        for b, sample in enumerate(samples):
            trace.value_gradient[sample.sample_id] = -scores.value.grad[b, : len(sample)].cpu()
    for name, value in parts.items():
        trace.loss[name] = trace.loss.get(name, 0.0) + value.item()
