"""One training step: reference and critic forwards, advantages, then optimizer updates.

Each optimizer step computes the gradient of one minibatch, micro-batch by micro-batch, clips it and steps the
optimizer. Loss denominators are computed over the whole minibatch, so any number of micro-batches gives the
same gradient. Samples without a gradient in any loss term are not computed.

Algorithms do not appear here by name: ``Algorithm`` contains their functions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from truing.algos import LossTerm
from truing.config import PolicyStage
from truing.distributed.sharded_tensors import whole
from truing.learner.backward_sums import check_at_optimizer, record_backward
from truing.learner.gates import skip_reason, skip_step_reason
from truing.learner.learner import Learner
from truing.learner.loss_check import check_loss
from truing.learner.optimizer import clip_and_step
from truing.learner.optimizer_step import OptimizerStep, loss_mask
from truing.learner.replayed_draws import replay_mask
from truing.learner.scoring import with_old_logprobs, with_reference_logprobs, with_values
from truing.models.critic import Critic
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import score
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.utils.memory import is_out_of_memory, release_freed_memory
from truing.utils.phase_clock import phase
from truing.utils.rng import permutation, seed_of

AuditHook = Callable[[Learner, Sequence[Sample]], None]
"""Audits the first minibatch of a step before any weight changes."""


def train_step(
    learner: Learner, samples: Sequence[Sample], key: tuple[object, ...], audit: AuditHook | None = None
) -> list[OptimizerStep]:
    """Train on the samples of a step; return its optimizer steps.

    Args:
        learner: policy, optimizer, reference and critic; its weights change in place.
        samples: of the step, before advantages.
        key: names the step in seeds and error texts, such as (seed, stage, step).
        audit: called with the first minibatch before its update.
    """
    if reason := skip_step_reason(samples, learner.setting):
        skipped = OptimizerStep(0, samples)
        skipped.skip_reason = reason
        return [skipped]
    learner.model.eval()  # old and reference log-probabilities are computed without dropout
    with phase("reference"):
        samples = with_reference_logprobs(with_old_logprobs(samples, learner), learner)
    with phase("value"):
        samples = with_values(samples, learner)
    samples = learner.algorithm.compute_advantages(samples, learner.setting)
    training_mode(learner.model)
    done: list[OptimizerStep] = []
    for number, minibatch in enumerate(minibatches(samples, learner.setting.stage, key)):
        learner.ranks.check_same(
            {"the rows of a minibatch": [sample.sample_id for sample in minibatch]},
            remedy="minibatches must follow from the recipe alone: look for random numbers without a key",
        )
        name = f"{'/'.join(map(str, key))}, optimizer step {number}"
        if audit is not None and number == 0:
            with phase("doctor"):
                audit(learner, minibatch)

        this = accumulate_gradients(learner, minibatch, number, (*key, number), name)
        done.append(this)
        this.skip_reason = skip_reason(this, learner.setting, name)
        if this.skip_reason:
            learner.optimizer.zero_grad(set_to_none=True)
            break

        with phase("optimizer"), _measuring_head_step(learner.critic, this), _checking_sums(learner, this):
            this.grad_norms = clip_and_step(
                learner.optimizer,
                learner.optimizer_cfg.max_grad_norm,
                name,
                *learner.parameter_groups(),
            )
    return done


def accumulate_gradients(
    learner: Learner, minibatch: list[Sample], index: int, key: tuple[object, ...], name: str
) -> OptimizerStep:
    """Forward and backward over a minibatch; if memory runs out, start over with smaller micro-batches."""
    terms = learner.algorithm.terms(learner.setting)
    with_gradient = [sample for sample in minibatch if any(term.has_gradient(sample) for term in terms)]
    terms_with_denominator = [(term, term.denominator(minibatch)) for term in terms]
    while True:
        this = OptimizerStep(index, minibatch, with_gradient)
        torch.manual_seed(seed_of(*key, "dropout", *([learner.ranks.rank] if learner.ranks.rank else [])))
        try:
            with _recording_backward(learner, this):
                for micro_batches in learner.passes(with_gradient):
                    this.micro_batches.append(micro_batches)
                    for sums in this.backward_sums:
                        sums.backward_pass += 1
                    own = micro_batches[learner.ranks.rank]
                    backward(learner, own, terms_with_denominator, this, name)
            this.exchange(learner.ranks)
            return this
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            learner.shrink_budget(this.micro_batches[-1])
        learner.optimizer.zero_grad(set_to_none=True)
        release_freed_memory()


def backward(
    learner: Learner,
    micro: MicroBatch,
    terms_with_denominator: Sequence[tuple[LossTerm, float]],
    this: OptimizerStep,
    name: str,
) -> None:
    """Forward and backward of one micro-batch: add to ``.grad`` and to the results of the optimizer step."""
    batch = collate(micro.samples)
    with phase("forward"):
        scores = score(
            learner.model,
            batch,
            loss_mask(batch),
            critic=learner.critic,
            recompute=micro.recompute,
            mass_below_mask_BT=replay_mask(learner, this.samples, batch) if this.index == 0 else None,
        )
        scores.logprob.retain_grad()
        if scores.value is not None:
            scores.value.retain_grad()
        losses = {
            term.name: term.weight * term.loss(batch, scores, denominator)
            for term, denominator in terms_with_denominator
        }
    learner.ranks.together("the losses of a micro-batch", lambda: check_loss(losses, name, batch, scores))
    with phase("backward"):
        loss = torch.stack(list(losses.values())).sum()
        (loss * 0 if micro.is_padding else loss).backward()
    if not micro.is_padding:
        this.add(batch, scores, losses)


@contextmanager
def _recording_backward(learner: Learner, this: OptimizerStep) -> Iterator[None]:
    """Sum the gradients that backward passes within the block produce, for policy and critic."""
    with ExitStack() as stack:
        this.backward_sums = [
            stack.enter_context(record_backward(group)) for group in learner.computed_groups
        ]
        yield


@contextmanager
def _checking_sums(learner: Learner, this: OptimizerStep) -> Iterator[None]:
    """Compare those sums with the gradients that the optimizer gets within the block."""
    with ExitStack() as stack:
        pairs = zip(learner.parameter_groups(), this.backward_sums, strict=True)
        this.sum_checks = [
            stack.enter_context(check_at_optimizer(learner.optimizer, group, sums)) for group, sums in pairs
        ]
        yield


@contextmanager
def _measuring_head_step(critic: Critic | None, this: OptimizerStep) -> Iterator[None]:
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
    this.head_step = float(torch.stack(distances).norm())


def minibatches(samples: Sequence[Sample], cfg: object, key: tuple[object, ...]) -> Iterator[list[Sample]]:
    """Yield the minibatch of each optimizer step: ``inner_epochs`` passes over the shuffled samples.

    With one minibatch per epoch, samples keep their order. Stages without inner epochs have one minibatch.
    """
    epochs, count = (cfg.inner_epochs, cfg.minibatches) if isinstance(cfg, PolicyStage) else (1, 1)
    for epoch in range(epochs):
        order = permutation(len(samples), *key, "minibatches", epoch) if count > 1 else range(len(samples))
        for first in range(count):
            minibatch = [samples[i] for i in list(order)[first::count]]
            if minibatch:
                yield minibatch
