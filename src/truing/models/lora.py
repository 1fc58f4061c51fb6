"""Low-rank adapters by peft: the policy's adapter, and a frozen one as the reference."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer, LoraModel
from torch import nn
from transformers import PreTrainedModel

from truing.distributed.sharded_tensors import copy_whole, whole
from truing.distributed.sharding import computing_device, whole_shapes
from truing.models.adapter_fit import UnfitAdapterError, check_fit, check_targets, last_names, linear_paths
from truing.models.forward.onednn_linear import use_onednn
from truing.models.forward.score import causal_model

POLICY, REFERENCE = "default", "reference"


def add_lora(
    model: PreTrainedModel,
    *,
    rank: int,
    alpha: float,
    dropout: float,
    targets: str | Sequence[str],
    seed: int,
) -> PeftModel:
    """Wrap a model in a trainable adapter; its own weights are frozen.

    The adapter starts at zero (B = 0), in fp32. Its A depends on ``seed`` alone: the global random state is
    neither read nor changed.

    Args:
        model: peft changes it in place: its linear layers become adapted layers.
        rank: of the product B·A added to each adapted weight.
        alpha: the product is scaled by alpha / rank.
        dropout: share of the adapter's input dropped in training mode.
        targets: ``all-linear`` (all but the output head), the names of the layers to adapt, or a regular
            expression for their whole paths.
        seed: of the initial A.

    Raises:
        UnfitAdapterError: A target matches no layer, which peft ignores beside one that matches.
    """
    if not isinstance(targets, str):
        check_targets(model, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=cast(int, alpha),  # peft divides it, and also reads fractions
        lora_dropout=dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    return wrap(model, config, source=f"lora.targets = {targets!r}", seed=seed)


def wrap(model: PreTrainedModel, config: LoraConfig, *, source: str, seed: int = 0) -> PeftModel:
    """Wrap a model in a new adapter of any config; ``source`` is where errors say that it comes from."""
    linear = linear_paths(model)
    try:
        with _seeded(model, seed), whole_shapes(model):
            policy = get_peft_model(model, config, adapter_name=POLICY)
    except ValueError as error:
        raise UnfitAdapterError(
            "the adapter does not fit this model",
            got=f"{source}: {' '.join(str(error).split())}",
            expected=f'"all-linear", or a list of: {", ".join(last_names(linear))}',
        ) from error
    check_fit(policy, model, linear, source)
    use_onednn(policy)
    return policy


def frozen_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the frozen base weights, by name."""
    return {name: p for name, p in model.named_parameters() if not p.requires_grad and "lora_" not in name}


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name: the adapter, or all weights. Tied weights count once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def adapted_layers(policy: nn.Module) -> dict[str, LoraLayer]:
    """Return the adapted layers by their name in the plain model."""
    modules = causal_model(policy).named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLayer)}


def training_mode(policy: nn.Module) -> None:
    """Enable the adapter's dropout only.

    The model's own dropout stays off: the sampler uses none, so the on-policy ratio would not be 1.
    """
    policy.eval()
    for layer in policy.modules():
        if isinstance(layer, LoraLayer):
            layer.lora_dropout.train()


@contextmanager
def modes_kept(policy: nn.Module) -> Iterator[None]:
    """After the block each module is in the mode, training or evaluation, that it was in before."""
    training = {module: module.training for module in policy.modules()}
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode


@contextmanager
def evaluation_mode(policy: nn.Module) -> Iterator[None]:
    """Compute without dropout within the block; the modes are those of before afterwards."""
    with modes_kept(policy):
        policy.eval()
        yield


@torch.no_grad()
def add_reference(policy: PeftModel) -> None:
    """Freeze a copy of the policy's adapter as the reference; it replaces an earlier one."""
    if REFERENCE in policy.peft_config:
        policy.delete_adapter(REFERENCE)
    with _requires_grad_restored(policy), _seeded(policy, seed=0):  # the random weights are overwritten below
        policy.add_adapter(REFERENCE, policy.peft_config[POLICY])
    use_onednn(policy)  # the same kernels as the policy's, so that equal weights have equal outputs
    for name, module in policy.named_modules():
        if name.endswith(f".{REFERENCE}"):
            module.to(computing_device(policy))  # FSDP2 does not gather it: it was added afterwards
    for name, parameter in policy.named_parameters():
        if f".{REFERENCE}." in name:
            copy_whole(parameter, whole(policy.get_parameter(name.replace(f".{REFERENCE}.", f".{POLICY}."))))
            parameter.requires_grad_(False)


def reference_parameters(policy: PeftModel) -> dict[str, nn.Parameter]:
    """Return the frozen copy of the adapter, by the names of the policy's own."""
    return {
        name.replace(f".{REFERENCE}.", f".{POLICY}."): parameter
        for name, parameter in policy.named_parameters()
        if f".{REFERENCE}." in name
    }


def adapter_is_zero(policy: PeftModel) -> bool:
    """Whether the policy's adapter adds exactly 0 everywhere, as a new one does."""
    return not any(
        whole(parameter).any()
        for name, parameter in policy.named_parameters()
        if f".{POLICY}." in name and ".lora_B." in name
    )


@contextmanager
def use_reference(policy: PeftModel) -> Iterator[None]:
    """Within the block ``policy`` computes as the reference: with its frozen adapter, or without any.

    It computes in evaluation mode and without gradients. Afterwards, also after an error, the active adapter,
    the ``requires_grad`` flags and the modes are restored.
    """
    training = {part: part.training for part in policy.modules()}
    try:
        with _adapter_restored(policy) as adapted, torch.no_grad():
            policy.eval()
            if REFERENCE in policy.peft_config:
                policy.set_adapter(REFERENCE, inference_mode=True)
            else:
                adapted.disable_adapter_layers()
            yield
    finally:
        for part, mode in training.items():
            part.training = mode  # the adapter's dropout may be on while all else is off


@contextmanager
def without_adapter(policy: PeftModel) -> Iterator[None]:
    """Within the block ``policy`` computes as its base; ``requires_grad`` flags are restored afterwards."""
    with _adapter_restored(policy) as adapted:
        adapted.disable_adapter_layers()
        yield


@contextmanager
def _adapter_restored(policy: PeftModel) -> Iterator[LoraModel]:
    """Yield the model with adapted layers; restore the active adapter and all flags afterwards."""
    active = policy.active_adapter
    adapted = cast(LoraModel, policy.base_model)  # which peft declares as any module
    with _requires_grad_restored(policy):
        try:
            yield adapted
        finally:
            adapted.enable_adapter_layers()
            policy.set_adapter(cast(str, active))  # one is active


@contextmanager
def _seeded(model: nn.Module, seed: int) -> Iterator[None]:
    """Draw initial weights from ``seed``; the global random state is unchanged."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), warnings.catch_warnings():
        # peft reads a transformers property by its old name; users cannot change that.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        warnings.filterwarnings("ignore", "fan_in_fan_out is set", UserWarning)  # as the layer needs it
        torch.manual_seed(seed)
        yield


@contextmanager
def _requires_grad_restored(model: nn.Module) -> Iterator[None]:
    """Restore every ``requires_grad`` flag afterwards: peft changes them when adapters change."""
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    try:
        yield
    finally:
        for name, flag in flags.items():
            model.get_parameter(name).requires_grad_(flag)
