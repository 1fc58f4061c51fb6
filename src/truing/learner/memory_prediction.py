"""The bytes of a run's weights and optimizer state, from shapes alone: nothing is loaded.

    base        all weights, in the dtype in which they are held; an adapter's base in ``model.dtype``, its
                linear layers in 4 bits and a scale per block with ``model.quantization``
    trained     float32: the adapter, or nothing in full training, whose base is trained
    optimizer   12 per trained weight: a gradient and AdamW's two moments
    sampler     what it holds of its own: in float32 a merged copy of what an adapter changes; the bfloat16
                weights of full training; all weights if FSDP2 holds the trainer's. Beside vLLM servers all
                of it is in main memory
    reference   a copy of what is trained
    critic      of its own trunk: what is trained, with gradient and moments
    main_memory beside a GPU: whole weights that are published, and with ``trainer.offload`` all of the above
                but the sampler and a second adapter

Activations and the cache of keys and values come on top; ``memory_budget.py`` measures the former.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from truing.algos import ALGORITHMS, StepConfig
from truing.config import Recipe
from truing.models.adapter_config import read_config
from truing.models.load import available_device
from truing.models.load_policy import computing_dtype_of, dtype_of_masters, needs_fsdp
from truing.models.lora import add_lora, trainable_parameters
from truing.models.quantized_linear import QuantizedLinear, quantize_layers
from truing.models.read_model import shapes_of_model
from truing.models.resolve import resolve_model
from truing.models.saved_adapter import wrap_as_saved
from truing.utils.memory import GB

STATE_BYTES = 12
"""Per trained float32 weight: a gradient and two moments."""


@dataclass(frozen=True)
class MemoryPrediction:
    """Bytes by purpose, of one rank; ``main_memory`` is beside a GPU."""

    base: int
    trained: int
    optimizer: int
    sampler: int
    reference: int
    critic: int
    main_memory: int = 0

    @property
    def total(self) -> int:
        """Return the sum of what is on the device."""
        return sum(asdict(self).values()) - self.main_memory

    def json(self) -> dict[str, int]:
        """Return the bytes by purpose, and their total on the device."""
        return asdict(self) | {"total": self.total}

    def text(self) -> str:
        """Return a sentence for the user."""
        on_device = {name: size for name, size in asdict(self).items() if size and name != "main_memory"}
        parts = ", ".join(f"{name} {size / GB:.2f}" for name, size in on_device.items())
        beside = f" and {self.main_memory / GB:.2f} GB of main memory" if self.main_memory else ""
        return (
            f"weights and optimizer need {self.total / GB:.2f} GB{beside} by their shapes"
            f"{f' ({parts})' if parts else ''}; activations and the cache come on top"
        )


def predict_memory(recipe: Recipe) -> MemoryPrediction:
    """Return what the weights of a recipe will need; with several ranks, what one of them needs.

    With ``trainer.replicate = "auto"`` that is the placement that needs the least.
    """
    placements = _placements(recipe) if recipe.trainer.replicate == "auto" else [recipe]
    return min((_predict(each) for each in placements), key=lambda needed: needed.total)


def _placements(recipe: Recipe) -> list[Recipe]:
    """Return a recipe with weights sharded over all ranks, and with all weights on each."""
    return [
        recipe.model_copy(update={"trainer": recipe.trainer.model_copy(update={"replicate": replicate})})
        for replicate in (1, recipe.trainer.ranks)
    ]


def _predict(recipe: Recipe) -> MemoryPrediction:
    """Return what is needed with a declared ``trainer.replicate``."""
    policy = _without_data(recipe)
    computing, masters = computing_dtype_of(recipe), dtype_of_masters(recipe)
    trained = sum(weight.numel() for weight in trainable_parameters(policy).values())
    base, own = _frozen_bytes(policy, computing), trained * torch.float32.itemsize
    assert recipe.trainer.replicate != "auto"
    copies, shards = _copies(recipe), recipe.trainer.ranks // recipe.trainer.replicate
    if masters is not None:
        sampler = trained * masters.itemsize
    else:
        held = own + (0 if _shares_base(recipe, shards) else base)  # of the copy with whole weights
        sampler = held * _has_copy(recipe) + _merged_bytes(policy, recipe)
    return _placed(
        MemoryPrediction(
            base=(base if recipe.lora else own) // shards,
            trained=(own if recipe.lora else 0) // shards,
            optimizer=STATE_BYTES * trained // shards,
            sampler=sampler,
            reference=(own if masters is None else sampler) * copies["reference"] // shards,
            critic=(own + STATE_BYTES * trained) * copies["critic"] // shards,
        ),
        recipe,
    )


def with_replicas(recipe: Recipe, free: int) -> Recipe:
    """Return a recipe with a number in place of ``trainer.replicate = "auto"``.

    Each rank holds all weights if they and the optimizer need at most half of the ``free`` bytes: activations
    and the cache come on top. Then no pass has to gather them. So it does if shards need more: the local
    engine has all weights beside them.
    """
    trainer = recipe.trainer
    if trainer.replicate != "auto":
        return recipe
    sharded, whole = _placements(recipe)
    if trainer.ranks == 1 or trainer.offload:
        return sharded
    ranks_in_memory = trainer.ranks if _is_on_cpu(recipe) else 1
    needed, of_shards = (predict_memory(each).total for each in (whole, sharded))
    return whole if needed <= max(of_shards, free / 2 / ranks_in_memory) else sharded


def _placed(needed: MemoryPrediction, recipe: Recipe) -> MemoryPrediction:
    """Return what is needed with the bytes beside a GPU as ``main_memory``."""
    if _is_on_cpu(recipe):
        return needed
    beside = set[str]()
    if recipe.engine.kind == "vllm" and _has_copy(recipe):
        beside |= {"sampler"}
    if recipe.trainer.offload:
        beside |= {"base", "trained", "optimizer", "critic"} | (set() if recipe.lora else {"reference"})
    moved = {name: size for name, size in asdict(needed).items() if name in beside}
    return replace(needed, **dict.fromkeys(moved, 0), main_memory=sum(moved.values()))


def _without_data(recipe: Recipe) -> nn.Module:
    """Return the policy of a recipe with shapes only."""
    model = shapes_of_model(resolve_model(recipe.model.name, recipe.model.revision))
    with torch.device("meta"):
        if not recipe.lora:
            return model
        if recipe.model.quantization:
            quantize_layers(model)
        if adapter := recipe.lora.adapter:
            return wrap_as_saved(model, Path(adapter), read_config(adapter))
        return add_lora(model, **recipe.lora.model_dump(exclude={"adapter"}), seed=0)


def _frozen_bytes(policy: nn.Module, computing: torch.dtype) -> int:
    """Return the bytes of the frozen weights, which are held in the dtype that computes or in 4 bits."""
    layers = [part for part in policy.modules() if isinstance(part, QuantizedLinear)]
    packed = {id(part): part.nbytes for layer in layers for part in (layer.weight, layer.absmax)}
    return sum(
        packed.get(id(weight), weight.numel() * computing.itemsize)
        for weight in policy.parameters()
        if not weight.requires_grad
    )


def _merged_bytes(policy: nn.Module, recipe: Recipe) -> int:
    """Return the bytes of the weights that the sampler holds merged with an adapter."""
    beside = recipe.model.quantization or computing_dtype_of(recipe) is not torch.float32
    if recipe.engine.kind != "local" or beside:
        return 0
    adapted = [part.get_base_layer() for part in policy.modules() if isinstance(part, LoraLayer)]
    return sum(cast("Tensor", layer.weight).numel() for layer in adapted) * torch.float32.itemsize


def _is_on_cpu(recipe: Recipe) -> bool:
    """Return whether a recipe trains on a CPU; a machine without a GPU predicts a recipe for one too."""
    declared = recipe.model.device
    return (available_device(declared) if declared == "auto" else declared) == "cpu"


def _has_copy(recipe: Recipe) -> bool:
    """Return whether FSDP2 holds the weights, so that sampler or publication have a copy of them."""
    return recipe.trainer.ranks > 1 or needs_fsdp(recipe)


def _shares_base(recipe: Recipe, shards: int) -> bool:
    """Return whether the copy with whole weights has the frozen weights of the policy themselves."""
    is_on_device = recipe.engine.kind == "local" or _is_on_cpu(recipe)  # else it is in main memory
    return shards == 1 and not recipe.trainer.offload and is_on_device


def _copies(recipe: Recipe) -> dict[str, bool]:
    """Return whether a stage has a reference, or a critic, with a copy of what is trained."""
    settings = {name: StepConfig.from_recipe(recipe, name) for name in recipe.stages}
    referring = [name for name, each in settings.items() if ALGORITHMS[name].needs_reference(each)]
    # the reference of a run's first stage is the base itself if there is a new adapter
    fresh = bool(recipe.lora and not recipe.lora.adapter)
    of_base = fresh and tuple(referring) == tuple(recipe.stages[:1]) and not recipe.reference.sync_every
    return {
        "reference": bool(referring) and not of_base,
        "critic": any(ALGORITHMS[name].critic(recipe.stage(name)) == "separate" for name in recipe.stages),
    }
