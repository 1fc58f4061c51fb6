"""Weights that are sharded over ranks with FSDP2, and whole again where a number needs them.

Each layer is gathered before it computes and freed after. Gradients are summed over ranks, not averaged:
denominators count the tokens of all ranks (``learner/step.py``).
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Replicate, Shard

from truing.distributed.sharded_tensors import local, rows_of_rank, whole

T = TypeVar("T")


def shard(
    root: nn.Module,
    layers: Sequence[nn.Module],
    mesh: DeviceMesh | None,
    dtype: torch.dtype | None = None,
    *,
    offload: bool = False,
) -> None:
    """Shard the parameters of a module in place: those of each layer together, the others with the root.

    Parameters that are parts already (``keep_parts``) keep their memory. Frozen weights that each rank has
    whole are left as they are: FSDP2 would copy them for each pass.

    Args:
        root: computed through ``in_forward``.
        layers: of the root, in the order in which they compute.
        mesh: one dimension shards; of two, the first replicates. None with one rank: nothing changes.
        dtype: weights are gathered, and compute, in this dtype, and their gradients are summed over
            micro-batches and ranks in float32. None: all in the dtype of the weights.
        offload: parts, their gradients and moments are in main memory; what is gathered is on the mesh's
            device. Parts that are given must be there already.
    """
    if mesh is None:
        return
    frozen = set[nn.Parameter]() if offload else _frozen_and_whole(root, mesh, dtype)
    # FSDP2 cuts whole parameters, of which it only needs shapes
    parts = _replaced(root, lambda part: torch.empty(part.shape, dtype=part.dtype, device="meta"))
    reduce_dtype = None if dtype is None else torch.float32
    # inputs of layers have the dtype of the embedding; casting others would differ from the plain model
    precision = MixedPrecisionPolicy(dtype, reduce_dtype, cast_forward_inputs=False)
    device = device_of(mesh)
    # pinned memory is copied while a GPU computes; torch needs one to pin it
    place = CPUOffloadPolicy(pin_memory=device.type != "cpu") if offload else OffloadPolicy()
    for module in (*layers, root):
        # freed after a forward without gradients too: else the next one would compute with older weights
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=True,
            mp_policy=precision,
            offload_policy=place,
            ignored_params=frozen,
        )
    _put_back(parts)  # FSDP2 takes parameters as they are when it first computes
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it sums
    root.computes_in, root.computes_on = dtype, device  # type: ignore[assignment]
    root.run_in_forward = _call  # type: ignore[assignment]
    register_fsdp_forward_method(root, "run_in_forward")


def _frozen_and_whole(root: nn.Module, mesh: DeviceMesh, dtype: torch.dtype | None) -> set[nn.Parameter]:
    """Return the frozen weights that each rank has whole, in the dtype that computes, as plain parameters."""
    if mesh.size(mesh.ndim - 1) > 1:
        return set()
    plain: dict[nn.Parameter, nn.Parameter] = {}  # by what it replaces, one of tied weights
    for module in root.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if not weight.requires_grad and dtype in (None, weight.dtype):
                if weight not in plain:
                    plain[weight] = nn.Parameter(whole(weight.detach()), requires_grad=False)
                setattr(module, name, plain[weight])
    return set(plain.values())


def device_of(mesh: DeviceMesh) -> torch.device:
    """Return the device of this rank on which a mesh computes."""
    if mesh.device_type == "cpu":
        return torch.device("cpu")
    return torch.device(mesh.device_type, torch.get_device_module(mesh.device_type).current_device())


def _call(compute: Callable[[], T]) -> T:
    return compute()


Part = tuple[nn.Module, str, nn.Parameter]
"""A parameter of which this rank has its part, with its module and its name there."""


def _replaced(root: nn.Module, stand_in: Callable[[Tensor], Tensor]) -> list[Part]:
    """Put what ``stand_in`` returns in the place of each part, of tied ones once; return the parts."""
    parts, others = list(_parts(root.modules())), dict[int, nn.Parameter]()
    for module, name, part in parts:
        if id(part) not in others:
            others[id(part)] = nn.Parameter(stand_in(part), requires_grad=part.requires_grad)
        setattr(module, name, others[id(part)])
    return parts


def _put_back(parts: list[Part]) -> None:
    """Put each part in the place of what FSDP2 made of its stand-in, and empty the list.

    Parts of another mesh, of CPUs, are copied into parameters of FSDP2's mesh that are in main memory. The
    stand-ins of what was sharded before, such as a critic's head, are as they were.
    """
    held: dict[nn.Parameter, nn.Parameter] = {}  # by what FSDP2 made, one of tied weights
    while parts:
        module, name, part = parts.pop()
        sharded: nn.Parameter = getattr(module, name)
        if sharded not in held:
            held[sharded] = _like(sharded, part) if _is_moved(sharded, part) else part
        setattr(module, name, held[sharded])


def _is_moved(sharded: Tensor, part: Tensor) -> bool:
    """Return whether a part is of another mesh than what FSDP2 made of its stand-in."""
    if not isinstance(sharded, DTensor) or not isinstance(part, DTensor):
        return False
    return part.device_mesh != sharded.device_mesh


@torch.no_grad()
def _like(sharded: nn.Parameter, part: nn.Parameter) -> nn.Parameter:
    """Return a part on the mesh of another one, where it is."""
    copied = torch.empty_like(sharded, device=part.device)
    local(copied).copy_(local(part))
    return nn.Parameter(copied, requires_grad=part.requires_grad)


@contextmanager
def whole_shapes(root: nn.Module) -> Iterator[None]:
    """Within the block parts look like whole parameters, without memory; then they train as those did."""
    parts = _replaced(
        root, lambda part: torch.zeros((), dtype=part.dtype, device=part.device).expand(part.shape)
    )
    try:
        yield
    finally:
        for module, name, part in parts:
            setattr(module, name, part.requires_grad_(getattr(module, name).requires_grad))


def _parts(modules: Iterable[nn.Module]) -> Iterator[Part]:
    """Yield the own parameters of modules that are parts."""
    for module in modules:
        for name, part in module.named_parameters(recurse=False):
            if isinstance(part, DTensor):
                yield module, name, part


def keep_parts(root: nn.Module, mesh: DeviceMesh) -> None:
    """Put this rank's part in the place of each parameter, as ``shard`` cuts them; tied ones stay tied."""
    parts: dict[int, nn.Parameter] = {}
    for module in root.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if isinstance(weight, DTensor):
                continue
            if id(weight) not in parts:
                parts[id(weight)] = nn.Parameter(_part(weight, mesh), requires_grad=weight.requires_grad)
            setattr(module, name, parts[id(weight)])


def _part(weight: Tensor, mesh: DeviceMesh) -> DTensor:
    """Return this rank's rows of a weight, in memory of their own; without data if it has none."""
    placements = [*[Replicate()] * (mesh.ndim - 1), Shard(0)]
    rows = rows_of_rank(weight.detach(), mesh, placements).clone()
    return DTensor.from_local(
        rows, mesh, placements, run_check=False, shape=weight.shape, stride=weight.stride()
    )


@contextmanager
def whole_parameters(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Within the block the own parameters of modules have the parts of all ranks; all ranks call this."""
    parts = list(_parts(modules))
    for module, name, part in parts:
        setattr(module, name, nn.Parameter(whole(part.detach()), requires_grad=False))
    try:
        yield
    finally:
        for module, name, part in parts:
            setattr(module, name, part)


def computing_dtype(model: nn.Module) -> torch.dtype:
    """Return the dtype in which a model computes: that of its first weight as forward passes see it.

    Weights that are packed in integers compute in the dtype of the others.
    """
    first = next(weight.dtype for weight in model.parameters() if weight.is_floating_point())
    return getattr(_root(model), "computes_in", None) or first


def computing_device(model: nn.Module) -> torch.device:
    """Return the device on which a transformers model computes; offloaded weights are in main memory."""
    return getattr(_root(model), "computes_on", None) or model.device  # type: ignore[return-value]


def _root(model: nn.Module) -> nn.Module | None:
    """Return the first sharded part of a model, which is all of it; None if it is not sharded."""
    return next((part for part in model.modules() if isinstance(part, FSDPModule)), None)


def in_forward(root: nn.Module, compute: Callable[[], T]) -> T:
    """Return what ``compute`` returns while the root's own parameters are whole.

    It must return all tensors with gradients as a tuple, list or dictionary: they start the backward pass.
    """
    return root.run_in_forward(compute) if isinstance(root, FSDPModule) else compute()  # type: ignore[operator]


def computed_parameters(root: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that take part in forward and backward passes, by name.

    Of sharded modules these are what FSDP2 gathers the parts into; it keeps them, so hooks on them stay.
    One module is whole at a time.
    """
    computed = dict(root.named_parameters())
    for prefix, module in root.named_modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            gathered = cast("nn.Module", module).named_parameters(prefix)  # as each FSDPModule is
            computed |= {name: each for name, each in gathered if not isinstance(each, DTensor)}
            module.reshard()
    return computed
