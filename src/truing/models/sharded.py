"""The layers of a model, sharded over ranks."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from truing.distributed.sharding import shard
from truing.models.forward.recompute import layers_of
from truing.models.forward.score import causal_model


def shard_model(model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Shard each layer of a model, and what is around the layers; with one rank nothing changes."""
    causal = causal_model(model)
    shard(causal, layers_of(causal), mesh)
