"""Open the engine that a recipe declares, and prove it before anything is sampled for training."""

from torch import nn

from truing.config import Recipe
from truing.distributed.ranks import ONE, Ranks
from truing.distributed.sharding import computing_device
from truing.engines.base import Engine
from truing.engines.local.engine import LocalEngine
from truing.engines.local.merge_adapter import sampler_copy
from truing.engines.prove_sampler import prove_sampler
from truing.engines.vllm.engine import open_vllm
from truing.models.digest import quick_sum
from truing.models.load import LoadedModel
from truing.models.lora import trainable_parameters
from truing.types.sampling_params import SamplingParams


def open_engine(recipe: Recipe, loaded: LoadedModel, policy: nn.Module, ranks: Ranks = ONE) -> Engine:
    """Return the engine of a rank, with the policy's weights of the start.

    Args:
        recipe: its ``engine`` and ``sampling``.
        loaded: the model on the trainer's device.
        policy: with whole weights.
        ranks: that each have an engine.
    """
    start_digest = quick_sum(trainable_parameters(policy))
    if recipe.engine.kind == "local":
        engine = LocalEngine(
            sampler_copy(policy), context_length=loaded.context_length, cuda_graphs=recipe.model.cuda_graphs
        )
        engine.publish(policy, 0, start_digest)
        prove_sampler(policy, engine)
        return engine
    engine = open_vllm(recipe, loaded.path, loaded.context_length, computing_device(loaded.model), ranks)
    try:
        for params in declared_params(recipe, loaded.stop_ids):
            engine.check_params(params)
            engine.prove_with(params)  # those of training come last
        engine.publish(policy, 0, start_digest)
    except BaseException:
        engine.close()
        raise
    return engine


def declared_params(recipe: Recipe, stop_ids: tuple[int, ...]) -> list[SamplingParams]:
    """Return the sampling parameters of a recipe's evaluation and of its training."""
    return [
        recipe.sampling.to_params(stop_ids, temperature=recipe.eval.temperature),
        recipe.sampling.to_params(stop_ids),
    ]
