"""The layers of a model or critic, sharded over ranks."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from truing.distributed.sharding import shard
from truing.models.critic import Critic
from truing.models.forward.output_head import head_of
from truing.models.forward.recompute import layers_of
from truing.models.forward.route_support import why_no_replay
from truing.models.forward.score import causal_model


def shard_model(
    model: nn.Module, mesh: DeviceMesh | None, dtype: torch.dtype | None = None, *, offload: bool = False
) -> None:
    """Shard each layer of a model, and what is around the layers; without a mesh nothing changes.

    ``dtype`` is what it computes in, if that is not the dtype of its weights. With ``offload`` they are in
    main memory.
    """
    causal = causal_model(model)
    head_of(causal)  # tests the output layer once, by a forward of its own that would free the root's weights
    why_no_replay(causal)  # tries the routers once, each with its whole weights
    shard(causal, layers_of(causal), mesh, dtype, offload=offload)


def shard_critic(
    critic: Critic, mesh: DeviceMesh | None, dtype: torch.dtype | None = None, *, offload: bool = False
) -> None:
    """Shard a critic; its head computes in float32 also if its trunk computes in another ``dtype``."""
    if mesh is not None and dtype is not None:
        shard(critic.head, [], mesh, offload=offload)
    shard(critic, [] if critic.trunk is None else layers_of(critic.trunk), mesh, dtype, offload=offload)
