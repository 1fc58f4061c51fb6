"""Tensors whose rows are sharded over ranks: whole ones, some entries, and the part of this rank."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def rows_of_rank(tensor: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """Return the rows of a whole tensor that a rank has."""
    size, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    return tensor[offset[0] : offset[0] + size[0]]


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the parts of all ranks; all ranks call this together."""
    tensor = _plain_if_whole(tensor)
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _plain_if_whole(tensor: Tensor) -> Tensor:
    """Return the plain tensor of one that each rank has whole, as with ``trainer.replicate``."""
    if not isinstance(tensor, DTensor):
        return tensor
    mesh = tensor.device_mesh
    is_whole = all(
        placement.is_replicate() or (placement.is_shard() and mesh.size(dim) == 1)
        for dim, placement in enumerate(tensor.placements)
    )
    return tensor.to_local() if is_whole else tensor


def whole_tables(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with the parts of all ranks, exchanged at once; all ranks call this together.

    An exchange costs about a millisecond, however small it is: many small tensors need one, not one each.
    """
    found = {name: _plain_if_whole(tensor) for name, tensor in tensors.items()}
    sharded = {name: tensor for name, tensor in found.items() if isinstance(tensor, DTensor)}
    for dtype in dict.fromkeys(tensor.dtype for tensor in sharded.values()):
        found |= _gathered({name: tensor for name, tensor in sharded.items() if tensor.dtype is dtype})
    return found


def _gathered(tensors: Mapping[str, DTensor]) -> dict[str, Tensor]:
    """Return tensors of one type, sharded in the same way, with the parts of all ranks."""
    mesh = next(iter(tensors.values())).device_mesh
    group, ranks = mesh.get_group(mesh.ndim - 1), mesh.size(mesh.ndim - 1)
    padded = []
    for tensor in tensors.values():
        part_n = tensor.to_local().reshape(-1)
        rows = -(-tensor.shape[0] // ranks)  # shards are rows, as many on each rank but the last ones
        padded.append(F.pad(part_n, (0, rows * (tensor.numel() // tensor.shape[0]) - len(part_n))))
    own_n = torch.cat(padded)
    of_ranks = [torch.empty_like(own_n) for _ in range(ranks)]
    dist.all_gather(of_ranks, own_n, group=group)
    parts = torch.stack(of_ranks).split([len(part_n) for part_n in padded], dim=1)
    return {
        name: part_rn.reshape(-1)[: tensor.numel()].reshape(tensor.shape)
        for (name, tensor), part_rn in zip(tensors.items(), parts, strict=True)
    }


def entries(tensors: Sequence[Tensor], indices: Sequence[Tensor]) -> list[Tensor]:
    """Return the entries of tensors at flat indices: [n] float64 of each.

    Tensors that are sharded, in the same way, are exchanged at once, and only these entries.
    """
    tensors = [_plain_if_whole(tensor) for tensor in tensors]
    found = [_local_entries(each, index_n) for each, index_n in zip(tensors, indices, strict=True)]
    sharded = [n for n, each in enumerate(tensors) if isinstance(each, DTensor)]
    if sharded:
        mesh = cast("DTensor", tensors[sharded[0]]).device_mesh
        all_n = torch.cat([found[n] for n in sharded])
        dist.all_reduce(all_n, group=mesh.get_group(mesh.ndim - 1))
        for n, part_n in zip(sharded, all_n.split([len(found[n]) for n in sharded]), strict=True):
            found[n] = part_n
    return found


def _local_entries(tensor: Tensor, index_n: Tensor) -> Tensor:
    """Return the entries of the part on this rank: [n] float64, 0 where others have them."""
    if not isinstance(tensor, DTensor):
        return tensor.reshape(-1)[index_n.to(tensor.device)].double()
    part = local(tensor)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    first = offset[0] * (tensor.numel() // max(1, tensor.shape[0]))  # shards are rows
    here_n = (index_n >= first) & (index_n < first + part.numel())
    found_n = torch.zeros(len(index_n), dtype=torch.float64, device=part.device)
    found_n[here_n.to(part.device)] = part.reshape(-1)[(index_n[here_n] - first).to(part.device)].double()
    return found_n


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor on this rank."""
    return local(tensor).nbytes


def like_part(tensor: DTensor, rows: Tensor) -> DTensor:
    """Return other rows of this rank, [local, columns], as a part sharded like ``tensor``."""
    shape = torch.Size((tensor.shape[0], rows.shape[1]))
    return DTensor.from_local(
        rows, tensor.device_mesh, tensor.placements, run_check=False, shape=shape, stride=(rows.shape[1], 1)
    )


@torch.no_grad()
def copy_whole(target: Tensor, source: Tensor) -> None:
    """Copy a whole tensor into one that may be sharded: each rank has the whole, and nothing is sent."""
    if isinstance(target, DTensor):
        source = rows_of_rank(source, target.device_mesh, target.placements)
    local(target).copy_(source)
