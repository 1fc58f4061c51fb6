"""The policy of a run: the module that trains, and its whole weights, which are sampled and copied."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from truing.config import Recipe
from truing.distributed.ranks import Ranks
from truing.distributed.sharded_tensors import whole
from truing.distributed.sharding import device_of
from truing.models.digest import quick_sum
from truing.models.forward_proof import prove_forward
from truing.models.load import LoadedModel
from truing.models.load_policy import as_it_computes, dtype_of_masters
from truing.models.lora import trainable_parameters
from truing.models.precision import sharing_weights, with_weights_in
from truing.models.sharded import shard_model

MAIN_MEMORY = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Policy:
    """Opened once per run by ``open_policy``; only its weights change."""

    loaded: LoadedModel
    module: nn.Module  # trained; sharded over ranks
    # with whole weights, of the last ``gather_weights``, in the dtype that computes; or the module itself.
    # Beside FSDP2 and ``engine.kind = "vllm"`` it is in main memory
    whole_module: nn.Module
    ranks: Ranks
    parameters: Mapping[str, nn.Parameter]  # trained
    masters: torch.dtype | None  # the dtype in which float32 weights compute, if that is another one
    offload: bool  # whether weights that train are in main memory

    @torch.no_grad()
    def gather_weights(self) -> None:
        """Copy the trained weights of all ranks into ``whole_module``."""
        if self.whole_module is not self.module:
            for name, weight in self.parameters.items():
                self.whole_module.get_parameter(name).copy_(whole(weight))

    def digest(self) -> str:
        """Return the digest of the trained weights, with which they are published."""
        return quick_sum(self.parameters)

    def trainable_copy(self) -> nn.Module:
        """Return the policy with whole weights, of the last ``gather_weights``, in the dtypes that train.

        It is a copy if those are not the dtypes that compute, or if weights that train are in main memory.
        """
        if self.masters is None:
            return self.whole_copy()
        place = MAIN_MEMORY if self.offload else None
        copied = with_weights_in(torch.float32, self.whole_module, place)
        for name, weight in self.parameters.items():
            copied.get_parameter(name).data.copy_(whole(weight.detach()))
        return copied

    def whole_copy(self) -> nn.Module:
        """Return ``whole_module`` to make copies of; with ``trainer.offload`` they begin in main memory."""
        if not self.offload:
            return self.whole_module
        return with_weights_in(None, self.whole_module, MAIN_MEMORY)


def open_policy(recipe: Recipe, loaded: LoadedModel, module: nn.Module, ranks: Ranks) -> Policy:
    """Shard what ``load_policy`` returns, prove its forward, and return the policy."""
    whole_module = _sharded(module, recipe, ranks)
    return Policy(
        loaded=loaded,
        module=module,
        whole_module=whole_module,
        ranks=ranks,
        parameters=trainable_parameters(module),
        masters=dtype_of_masters(recipe),
        offload=recipe.trainer.offload,
    )


def _sharded(module: nn.Module, recipe: Recipe, ranks: Ranks) -> nn.Module:
    """Shard a policy and prove its forward; return the one with whole weights, that samples or is published.

    Servers sample from copies of their own, so beside them it is in main memory.
    """
    masters, offload = dtype_of_masters(recipe), recipe.trainer.offload
    if ranks.mesh is None:
        prove_forward(module)
        return as_it_computes(module, recipe)
    samples_on = MAIN_MEMORY if recipe.engine.kind == "vllm" else device_of(ranks.mesh)
    whole_module = with_weights_in(masters, module, samples_on, share_frozen=not offload)
    if masters is not None:  # rounded, less can be proven
        exact = sharing_weights(module)
        shard_model(exact, ranks.mesh, offload=offload)
        prove_forward(exact)
    shard_model(module, ranks.mesh, masters, offload=offload)
    prove_forward(module)
    return whole_module
