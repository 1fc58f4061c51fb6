"""The layers of a model, sharded over ranks."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from truing.distributed.sharding import shard
from truing.models.forward.output_head import head_of
from truing.models.forward.recompute import layers_of
from truing.models.forward.score import causal_model


def shard_model(model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Shard each layer of a model, and what is around the layers; with one rank nothing changes."""
    causal = causal_model(model)
    head_of(causal)  # tests the output layer once, by a forward of its own that would free the root's weights
    shard(causal, layers_of(causal), mesh)
