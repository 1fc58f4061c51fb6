"""Loads models as a rank, and compares its parts with whole weights: ``python … FOLDER_OR_NAME DTYPE …``.

``FOLDER:FOLDER`` are a folder for each rank. ``REPLICATE`` is the number of replicas. With ``OFFLOAD`` FSDP2
then holds the parts in main memory, over a mesh that says it is CUDA and computes on the CPU.
"""

import os
import sys
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp
from torch.distributed.tensor import DTensor

from truing.distributed import sharding
from truing.distributed.ranks import Ranks, join
from truing.distributed.sharded_tensors import local_bytes, whole
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.forward_proof import proof_sample
from truing.models.load import load
from truing.models.sharded import shard_model


def compare(name: str, dtype: torch.dtype) -> None:
    """Raise unless the parts of all ranks are the whole weights, and this rank holds its share of them."""
    ranks = join("cpu", 60).with_mesh("cpu", int(os.environ.get("REPLICATE", "1")))
    ranks = on_gpus(ranks) if "OFFLOAD" in os.environ else ranks
    alone, shared = load(name, dtype=dtype), load(name, dtype=dtype, ranks=ranks.in_main_memory())
    compare_weights(shared.model, alone.model)
    buffers = dict(shared.model.named_buffers())
    for each, buffer in alone.model.named_buffers():
        assert torch.equal(buffers[each], buffer), each
    models = alone.model, shared.model
    ends = [(each.get_input_embeddings().weight, each.get_output_embeddings().weight) for each in models]
    assert (ends[0][0] is ends[0][1]) == (ends[1][0] is ends[1][1])
    assert shared.digest == alone.digest
    if "OFFLOAD" in os.environ:
        shard_model(shared.model, ranks.mesh, offload=True)
        compare_weights(shared.model, alone.model)
        assert {weight.device_mesh.device_type for weight in shared.model.parameters()} == {"cuda"}
        batch = collate([proof_sample("a", torch.tensor([3, 4, 5]), torch.tensor([6, 7, 8]))])
        logprobs = [score(each, batch, batch.policy_mask).logprob for each in models]
        assert torch.equal(*logprobs)


def compare_weights(shared: nn.Module, alone: nn.Module) -> None:
    """Raise unless the parts of all ranks are the whole weights, and this rank holds its share of them."""
    parts, weights = (dict(each.named_parameters()) for each in (shared, alone))
    assert parts.keys() == weights.keys()
    for each in parts:
        assert isinstance(parts[each], DTensor), each
        assert parts[each].dtype == weights[each].dtype
        assert torch.equal(whole(parts[each].detach()), weights[each]), each
    assert sum(map(local_bytes, parts.values())) < 0.6 * sum(weight.nbytes for weight in weights.values())


def on_gpus(ranks: Ranks) -> Ranks:
    """Return the ranks with the mesh of GPUs over the same groups; FSDP2 computes on the CPU from now on."""
    fsdp._get_device_from_mesh = sharding.device_of = lambda mesh: torch.device("cpu")
    groups, mesh = ranks.mesh.get_all_groups(), ranks.mesh
    group = groups if mesh.ndim > 1 else groups[0]
    return replace(
        ranks, mesh=DeviceMesh.from_group(group, "cuda", mesh.mesh, mesh_dim_names=mesh.mesh_dim_names)
    )


if __name__ == "__main__":
    for name, dtype in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        folders = name.split(":")
        compare(folders[int(os.environ["RANK"]) % len(folders)], getattr(torch, dtype))
