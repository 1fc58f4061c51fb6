"""The gradient on its way to the optimizer."""

from itertools import count

import torch

from dev.faults.fault import Fault, patched
from truing.models.forward.score import causal_model


def _clip_left_out(real):
    return lambda optimizer, norm, where, *parts: real(optimizer, 1e9, where, *parts)


CLIP_LEFT_OUT = Fault(
    name="clip-left-out",
    numbers=(57,),
    what="the declared clip of the gradient is missing",
    plant=lambda: patched("truing.learner.step:clip_and_step", _clip_left_out),
    expected=("OPT008",),
    changes={"optimizer.max_grad_norm": 0.01},
)


def _clipped_each_micro_batch(real):
    def backward(learner, micro, divided, done, where, *hooks):
        real(learner, micro, divided, done, where, *hooks)
        if not where.startswith("the doctor"):
            torch.nn.utils.clip_grad_norm_(learner.parameters.values(), 0.02)

    return backward


CLIPPED_EACH_MICRO_BATCH = Fault(
    name="clipped-each-micro-batch",
    numbers=(57,),
    what="the accumulated gradient is clipped after every micro-batch",
    plant=lambda: patched("truing.learner.step:backward", _clipped_each_micro_batch),
    expected=("OPT009",),
    changes={"optimizer.micro_batch_tokens": 64, "optimizer.max_grad_norm": 0.02},
)


def _first_batch_for_ever(real):
    batches = {}

    def source(sampler, algorithm, setting, stage, step, mask):
        if stage not in batches:
            batches[stage] = real(sampler, algorithm, setting, stage, step, mask)
        return batches[stage]

    return source


FIRST_BATCH_FOR_EVER = Fault(
    name="first-batch-for-ever",
    numbers=(63,),
    what="every step trains the first batch of a stage",
    plant=lambda: patched("truing.trainer.collector:collect_step_samples", _first_batch_for_ever),
    expected=("OPT012",),
)


def _first_minibatch_again(real):
    def minibatches(samples, cfg, key):
        batches = list(real(samples, cfg, key))
        return iter([batches[0]] * len(batches))

    return minibatches


FIRST_MINIBATCH_AGAIN = Fault(
    name="first-minibatch-again",
    numbers=(63,),
    what="every minibatch is the first one of its batch",
    plant=lambda: patched("truing.learner.step:minibatches", _first_minibatch_again),
    expected=("OPT011",),
    changes={"grpo.minibatches": 2},
)


def _gradient_left_over(real):
    gradients = {}

    def clip_and_step(optimizer, max_norm, where, *parts):
        for name, parameter in parts[0].items():
            if parameter.grad is not None:
                parameter.grad += gradients.get(name, 0.0)
                gradients[name] = parameter.grad.clone()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


GRADIENT_LEFT_OVER = Fault(
    name="gradient-left-over",
    numbers=(56,),
    what="gradients are not cleared between steps",
    plant=lambda: patched("truing.learner.step:clip_and_step", _gradient_left_over),
    expected=("OPT009",),
)


def _gradient_turned(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        for parameter in parts[0].values():
            if parameter.grad is not None:
                parameter.grad.neg_()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


GRADIENT_TURNED = Fault(
    name="gradient-turned",
    numbers=(32,),
    what="the optimizer maximises the loss",
    plant=lambda: patched("truing.learner.step:clip_and_step", _gradient_turned),
    expected=("OPT009",),
)


def _layer_cleared(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        for name, parameter in parts[0].items():
            if ".layers.1." in name:
                parameter.grad = None
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


LAYER_CLEARED = Fault(
    name="layer-cleared",
    numbers=(32,),
    what="the gradient of one layer never reaches the optimizer",
    plant=lambda: patched("truing.learner.step:clip_and_step", _layer_cleared),
    expected=("OPT009",),
)


def _layer_detached(real):
    def forward(self, hidden_states, *args, **kwargs):
        if self.self_attn.layer_idx == 1:
            hidden_states = hidden_states.detach()
        return real(self, hidden_states, *args, **kwargs)

    return forward


LAYER_DETACHED = Fault(
    name="layer-detached",
    numbers=(32,),
    what="the forward is cut below the second layer",
    plant=lambda: patched(
        "transformers.models.llama.modeling_llama:LlamaDecoderLayer.forward", _layer_detached
    ),
    expected=("OPT009",),
    changes={"lora.rank": 4},
)


AT_layer_detached_once = 7
"""The fourth step of GRPO, after three of supervised fine-tuning."""


def _layer_detached_once(real):
    calls = count(1)

    def accumulate(learner, *args):
        if next(calls) != AT_layer_detached_once:
            return real(learner, *args)
        layer = causal_model(learner.model).model.layers[1].mlp
        handle = layer.register_forward_hook(lambda module, inputs, out: out.detach())
        try:
            return real(learner, *args)
        finally:
            handle.remove()

    return accumulate


LAYER_DETACHED_ONCE = Fault(
    name="layer-detached-once",
    numbers=(32, 71),
    what="the forward of one step is cut after a layer",
    plant=lambda: patched("truing.learner.step:accumulate_gradients", _layer_detached_once),
    expected=("OPT014", "OPT009"),
    changes={"grpo.steps": 6},
)


AT_layer_lost_once = 7
"""The fourth step of GRPO, after three of supervised fine-tuning."""


def _layer_lost_once(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT_layer_lost_once:
            for name, parameter in parts[0].items():
                if ".layers.1." in name:
                    parameter.grad = None
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


LAYER_LOST_ONCE = Fault(
    name="layer-lost-once",
    numbers=(71,),
    what="the gradient of one layer is lost in one step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _layer_lost_once),
    expected=("OPT009", "OPT014"),
    changes={"grpo.steps": 6},
)


def _row_twice(real):
    def micro_batches(self, model, samples):
        batches = list(real(self, model, samples))
        return [batches[0], *batches[:1], *batches[2:]] if len(batches) > 1 else batches

    return micro_batches


ROW_TWICE = Fault(
    name="row-twice",
    numbers=(63,),
    what="the second micro-batch is the first one again",
    plant=lambda: patched("truing.learner.memory_budget:MemoryBudget.micro_batches", _row_twice),
    expected=("OPT011",),
    changes={"optimizer.micro_batch_tokens": 64},
)


AT_step_twice_once = 7
"""The fourth step of GRPO, after three of supervised fine-tuning."""


def _step_twice_once(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT_step_twice_once:
            optimizer.step()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


STEP_TWICE_ONCE = Fault(
    name="step-twice-once",
    numbers=(58, 71),
    what="the optimizer makes one of its steps twice",
    plant=lambda: patched("truing.learner.step:clip_and_step", _step_twice_once),
    expected=("OPT014",),
    changes={"grpo.steps": 6},
)


AT_weight_doubled_once = 7
"""The fourth step of GRPO, after three of supervised fine-tuning."""


def _weight_doubled_once(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT_weight_doubled_once:
            parts[0][sorted(parts[0])[5]].grad.mul_(2)
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


WEIGHT_DOUBLED_ONCE = Fault(
    name="weight-doubled-once",
    numbers=(71,),
    what="the gradient of one weight counts twice in one step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _weight_doubled_once),
    expected=("OPT014", "OPT009"),
    changes={"grpo.steps": 6},
)
