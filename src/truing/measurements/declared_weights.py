"""What trains, beside what the recipe declares; and weights, beside those of the model's files."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from truing.config import Recipe
from truing.distributed.sharded_tensors import whole
from truing.doctor.oracle.trained_weights import adapter_shapes, differences
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.sampler_layer import declared_scale_of
from truing.models.load_policy import computing_dtype_of
from truing.models.lora import POLICY, adapted_layers
from truing.models.read_model import shapes_of_model
from truing.models.saved_adapter import WEIGHTS
from truing.types.weight_facts import DeclaredWeights

SHOWN = 4
"""Weights that a fact names."""


class TrainedWeights(Measurement):
    """The weights that the optimizer has, beside those that the recipe's adapter, or full training, gives.

    Of an adapter the factor of each layer's B A too. In a run's first step also each weight beside the
    model's files, and each new adapter beside 0; in a stage's, a new critic beside the policy.
    """

    facts = ("declared_weights",)
    cost = "names and shapes; in a run's first step, the model's files once more"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        declared, trained = _declared(step), _trained(step)
        wrong = differences(declared, {name: tuple(weight.shape) for name, weight in trained.items()})
        wrong |= {
            name: f"is in {_dtype(weight)}" for name, weight in trained.items() if not _is_float32(weight)
        }
        wrong |= _other_scales(step)
        fact: DeclaredWeights = {"declared": len(declared), "wrong": _shown(wrong), "count": len(wrong)}
        if step.step == 0:
            other = dict(_not_as_in_files(step)) if step.step_index == 0 else {}
            other |= dict(_not_as_critics_begin(step))
            fact["other"], fact["other_count"] = _shown(other), len(other)
        self.found = {"declared_weights": fact}


def _shown(wrong: Mapping[str, str]) -> list[str]:
    return [f"{name} {what}" for name, what in list(wrong.items())[:SHOWN]]


def _is_float32(weight: Tensor) -> bool:
    return weight.dtype is torch.float32


def _dtype(weight: Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def plain_name(name: str) -> str:
    """Return a parameter's name as the model without an adapter, or the adapter's file, has it."""
    plain = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
    return plain.replace(f".{POLICY}.", ".")


def _trained(step: MeasuredStep) -> dict[str, Tensor]:
    """Return the weights that the optimizer steps, policy and critic, by plain name."""
    learner = step.learner
    named = {plain_name(name): weight for name, weight in learner.model.named_parameters()}
    if learner.critic is not None:
        parts = learner.critic.named_parameters()
        named |= {f"critic.{plain_name(name)}": weight for name, weight in parts}
    stepped = {id(weight) for group in learner.optimizer.param_groups for weight in group["params"]}
    return {name: weight for name, weight in named.items() if id(weight) in stepped and weight.requires_grad}


def _other_scales(step: MeasuredStep) -> dict[str, str]:
    """Return the adapted layers that multiply B A by another factor than the declared one, and by which."""
    wrong: dict[str, str] = {}
    model = step.learner.model
    for name, layer in adapted_layers(model).items() if step.recipe.lora else ():
        scale, declared = layer.scaling[POLICY], declared_scale_of(model, step.recipe, name)
        if not math.isclose(scale, declared, rel_tol=1e-9):
            wrong[name] = f"multiplies B A by {scale:.6g}, not by {declared:.6g}"
    return wrong


def _declared(step: MeasuredStep) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights that the recipe trains in a stage, by plain name."""
    shapes = declared_shapes(step.recipe, step.policy.loaded.path)
    critic = step.learner.critic
    if critic is None:
        return shapes
    parts = critic.head.named_parameters()
    heads = {f"critic.head.{name}": tuple(weight.shape) for name, weight in parts}
    if step.learner.algorithm.critic(step.learner.setting.stage) != "separate":
        return shapes | heads
    return shapes | heads | {f"critic.trunk.{name}": shape for name, shape in shapes.items()}


def declared_shapes(recipe: Recipe, folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the policy's weights that a recipe trains, of the model in a folder."""
    lora = recipe.lora
    if lora and lora.adapter is not None:
        return dict(_saved_shapes(Path(lora.adapter).expanduser() / WEIGHTS))
    layers, head, weights = _model_shapes(folder)
    if not lora:
        return dict(weights)
    assert lora.rank is not None  # of a new adapter
    assert lora.targets is not None
    return adapter_shapes(layers, head, lora.rank, lora.targets)


@lru_cache(maxsize=2)
def _model_shapes(
    folder: Path,
) -> tuple[Mapping[str, tuple[int, int]], str, Mapping[str, tuple[int, ...]]]:
    """Return linear layers, output head and the shapes of all weights of a model, from its config."""
    model = shapes_of_model(folder)
    layers, head, last = dict[str, tuple[int, int]](), "", model.get_output_embeddings()
    for path, part in cast(nn.Module, model).named_modules():
        if isinstance(part, nn.Linear):
            layers[path] = part.in_features, part.out_features
        elif isinstance(part, Conv1D):
            layers[path] = part.nx, part.nf
        head = path if part is last else head
    return layers, head, {name: tuple(weight.shape) for name, weight in model.named_parameters()}


@lru_cache(maxsize=2)
def _saved_shapes(file: Path) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of a saved adapter's weights, by plain name."""
    return {plain_name(name): tuple(weight.shape) for name, weight in _tensors(file)}


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a file, one at a time, in the order of their names."""
    with safe_open(file, framework="pt") as tensors:
        for name in sorted(tensors.keys()):
            yield name, tensors.get_tensor(name)


def _files(folder: Path) -> list[Path]:
    """Return the files that a model is read from."""
    one = folder / "model.safetensors"
    return [one] if one.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))


def _not_as_in_files(step: MeasuredStep) -> Iterator[tuple[str, str]]:
    """Yield each weight that differs from the model's files, or from 0 if it is a new adapter's B."""
    recipe, lora = step.recipe, step.recipe.lora
    own = {plain_name(name): weight.detach() for name, weight in step.learner.model.named_parameters()}
    files = _files(step.policy.loaded.path)
    if lora and lora.adapter is not None:
        files.append(Path(lora.adapter).expanduser() / WEIGHTS)
    elif lora:
        names = [name for name in sorted(own) if name.endswith(".lora_B.weight")]
        yield from ((name, "is not 0, as a new adapter's B is") for name in names if whole(own[name]).any())
        yield from _drawn_twice({name: own[name] for name in sorted(own) if name.endswith(".lora_A.weight")})
    dtype = computing_dtype_of(recipe) if lora else torch.float32
    for file in files:
        yield from differences_to_file(own, file, dtype)


def _drawn_twice(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield each weight that begins as another one: a new adapter draws the A of each layer."""
    first: dict[str, str] = {}
    for name, weight in weights.items():
        digest = hashlib.sha256(
            whole(weight).cpu().contiguous().view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        if digest in first:
            yield name, f"begins as {first[digest]} does"
        first.setdefault(digest, name)


def _not_as_critics_begin(step: MeasuredStep) -> Iterator[tuple[str, str]]:
    """Yield each weight of a new critic that is not 0 in its head, or not the policy's in its trunk."""
    critic = step.learner.critic
    if critic is None:
        return
    for name, weight in critic.head.named_parameters():
        if whole(weight.detach()).any():
            yield f"critic.head.{name}", "is not 0, as that of a new critic is"
    policy = {plain_name(name): weight for name, weight in step.learner.model.named_parameters()}
    for name, weight in critic.trunk.named_parameters() if critic.trunk is not None else ():
        own = policy.get(plain_name(name))
        if own is None:
            continue
        trunk, policy_weight = whole(weight.detach()).cpu(), whole(own.detach()).cpu()
        if not torch.equal(trunk.to(policy_weight.dtype), policy_weight):
            yield f"critic.trunk.{plain_name(name)}", "is not the policy's, as that of a new critic is"


def differences_to_file(
    own: Mapping[str, Tensor], file: Path, dtype: torch.dtype
) -> Iterator[tuple[str, str]]:
    """Yield each weight that differs from a file of safetensors in the declared dtype, and how.

    Experts in one tensor are left out, since files may have them transposed, and quantized layers, which are
    packed.
    """
    for name, stored in _tensors(file):
        weight = own.get(plain_name(name))
        if weight is None or weight.shape != stored.shape or weight.ndim > 2:
            continue
        if weight.is_floating_point() and (what := difference_of(whole(weight), stored, dtype)):
            yield plain_name(name), what


def difference_of(weight: Tensor, stored: Tensor, dtype: torch.dtype) -> str:
    """Return how a weight differs from the stored one in the declared dtype; "" if it does not.

    Some modules keep float32 beside a lower dtype, which is no difference.
    """
    if weight.dtype not in (dtype, torch.float32):
        return f"is in {_dtype(weight)}, not {str(dtype).removeprefix('torch.')}"
    differs = weight.cpu() != stored.to(weight.dtype)
    if not differs.any():
        return ""
    largest = float((weight.cpu().double() - stored.double()).abs().max())
    return f"differs in {int(differs.sum())} of {differs.numel()} numbers, by up to {largest:.2g}"
