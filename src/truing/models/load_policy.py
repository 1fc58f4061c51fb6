"""The module that a recipe trains: its model, or its model with an adapter, in the declared dtypes."""

import torch
from torch import nn

from truing.config import Recipe
from truing.distributed.ranks import ONE, Ranks
from truing.models.forward.float32_embedding import use_float32_sums
from truing.models.forward.float32_head import use_float32_head
from truing.models.load import LoadedModel, load
from truing.models.lora import add_lora
from truing.models.precision import with_weights_in
from truing.models.saved_adapter import add_saved_adapter, read_adapter
from truing.utils.rng import seed_of


def load_policy(recipe: Recipe, ranks: Ranks = ONE) -> tuple[LoadedModel, nn.Module]:
    """Return the model of a recipe, and the policy: the model itself, or the model with an adapter.

    If the ranks have a mesh, each weight of the model is this rank's part of it; with ``trainer.offload`` the
    part is in main memory.

    A base under an adapter has the dtype that the recipe computes in. Weights that are trained are float32.
    """
    model, dtype = recipe.model, computing_dtype_of(recipe)
    offload = recipe.trainer.offload and ranks.mesh is not None
    loaded = load(
        model.name,
        revision=model.revision,
        chat_template=model.chat_template,
        device="cpu" if offload else model.device,
        dtype=dtype if recipe.lora else torch.float32,
        quantized=model.quantization is not None,
        ranks=ranks.in_main_memory() if offload else ranks,
    )
    if dtype is torch.bfloat16:
        use_float32_head(loaded.model)
        use_float32_sums(loaded.model)
    return loaded, add_adapter(loaded, recipe)


def add_adapter(loaded: LoadedModel, recipe: Recipe) -> nn.Module:
    """Return the policy of a loaded model: with a new adapter, with a saved one, or the model itself."""
    lora = recipe.lora
    if not lora:
        return loaded.model
    declared = lora.model_dump(include={"rank", "alpha", "targets"})
    if lora.adapter is None:
        seed = seed_of(recipe.seed, "lora")
        return add_lora(loaded.model, **declared, dropout=lora.dropout, seed=seed)
    return add_saved_adapter(loaded, read_adapter(lora.adapter), **declared, dropout=lora.dropout)


def computing_dtype_of(recipe: Recipe) -> torch.dtype:
    """Return the dtype in which a recipe's model computes."""
    return getattr(torch, recipe.model.dtype)


def dtype_of_masters(recipe: Recipe) -> torch.dtype | None:
    """Return the dtype in which float32 weights compute if it is another one; else None."""
    dtype = computing_dtype_of(recipe)
    return None if recipe.lora or dtype is torch.float32 else dtype


def needs_fsdp(recipe: Recipe) -> bool:
    """Return whether FSDP2 holds the weights of one process too."""
    return dtype_of_masters(recipe) is not None or recipe.trainer.offload


def as_it_computes(policy: nn.Module, recipe: Recipe) -> nn.Module:
    """Return a policy with the weights that compute and sample: float32 masters are copied and rounded."""
    dtype = dtype_of_masters(recipe)
    return policy if dtype is None else with_weights_in(dtype, policy)
