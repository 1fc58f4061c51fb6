"""One training step: reference and critic forwards, advantages, then optimizer steps.

Each optimizer step computes the gradient of one minibatch, micro-batch by micro-batch, clips it and steps the
optimizer. Loss denominators are computed over the whole minibatch, so any number of micro-batches gives the
same gradient. Samples without a gradient in any loss term are not computed.

Algorithms do not appear here by name: ``Algorithm`` contains their functions.
"""

from collections.abc import Iterator, Sequence

import torch

from truing.algos import LossTerm
from truing.config import PolicyStage
from truing.learner.gates import skip_reason, skip_step_reason
from truing.learner.hooks import StepHooks
from truing.learner.learner import Learner
from truing.learner.loss_check import check_loss
from truing.learner.optimizer import clip_and_step
from truing.learner.optimizer_step import OptimizerStep, loss_mask
from truing.learner.scoring import with_old_logprobs, with_reference_logprobs, with_values
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import score
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.utils.memory import is_out_of_memory, release_freed_memory
from truing.utils.phase_clock import phase
from truing.utils.rng import permutation, seed_of

NO_HOOKS = StepHooks()


def train_step(
    learner: Learner, samples: Sequence[Sample], key: tuple[object, ...], hooks: StepHooks = NO_HOOKS
) -> list[OptimizerStep]:
    """Train on the samples of a step; return its optimizer steps.

    Args:
        learner: policy, optimizer, reference and critic; its weights change in place.
        samples: of the step, before advantages.
        key: names the step in seeds and error texts, such as (seed, stage, step).
        hooks: run beside the optimizer steps.
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
        if number == 0:
            hooks.before_optimizer_steps(minibatch)

        this = accumulate_gradients(learner, minibatch, number, (*key, number), name, hooks)
        done.append(this)
        this.skip_reason = skip_reason(this, learner.setting, name)
        if this.skip_reason:
            learner.optimizer.zero_grad(set_to_none=True)
            break

        with phase("optimizer"), hooks.on_optimizer(this):
            this.grad_norms = clip_and_step(
                learner.optimizer,
                learner.optimizer_cfg.max_grad_norm,
                name,
                *learner.parameter_groups(),
            )
    return done


def accumulate_gradients(
    learner: Learner,
    minibatch: list[Sample],
    index: int,
    key: tuple[object, ...],
    name: str,
    hooks: StepHooks = NO_HOOKS,
) -> OptimizerStep:
    """Forward and backward over a minibatch; if memory runs out, start over with smaller micro-batches."""
    terms = learner.algorithm.terms(learner.setting)
    with_gradient = [sample for sample in minibatch if any(term.has_gradient(sample) for term in terms)]
    terms_with_denominator = [(term, term.denominator(minibatch)) for term in terms]
    while True:
        this = OptimizerStep(index, minibatch, with_gradient)
        torch.manual_seed(seed_of(*key, "dropout", *([learner.ranks.rank] if learner.ranks.rank else [])))
        try:
            with hooks.on_backward(this):
                for micro_batches in learner.passes(with_gradient):
                    this.micro_batches.append(micro_batches)
                    own = micro_batches[learner.ranks.rank]
                    backward(learner, own, terms_with_denominator, this, name, hooks)
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
    hooks: StepHooks = NO_HOOKS,
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
            mass_below_mask_BT=hooks.mass_below_mask(this, batch),
        )
        scores.logprob.retain_grad()
        scores.entropy.retain_grad()
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
