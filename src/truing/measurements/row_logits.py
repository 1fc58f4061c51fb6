"""A plain forward of one row: the model's own, without the trainer's batches, kernels or caches."""

from contextlib import nullcontext

from torch import Tensor, nn

from truing.distributed.sharding import computing_device
from truing.doctor.oracle.expert_routes import routes_imposed
from truing.doctor.oracle.forward import Logits
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import routes_to_replay
from truing.models.forward.score import causal_model
from truing.types.sample import Sample


def row_logits(model: nn.Module, row: Sample) -> Logits:
    """Return a function that runs the model's own forward on one row, along its expert routes on record."""
    routes = routes_to_replay(causal_model(model), [row])
    return model_logits(model, None if routes is None else routes[0])


def model_logits(model: nn.Module, routes: Tensor | None = None) -> Logits:
    """Return a function that runs the model's own forward on one row; its tokens take ``routes`` if given."""
    causal = causal_model(model)

    def logits(ids: Tensor, positions: Tensor) -> Tensor:
        input_ids, to_keep = (each.to(computing_device(causal)) for each in (ids[None], positions))
        imposed = nullcontext() if routes is None else routes_imposed(causal.get_decoder(), routes)
        with autocast(causal), imposed:
            return causal(input_ids=input_ids, logits_to_keep=to_keep, use_cache=False).logits[0]

    return logits
