"""The CPUs and GPUs that each rank and each placed engine reserves: bundles of a Ray placement group."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from truing.config import Recipe
from truing.errors import RecipeError

Bundle = Mapping[str, float]
"""An amount by resource, as Ray names them: ``{"CPU": 2, "GPU": 1}``."""


def uses_gpus(recipe: Recipe, resources: Bundle) -> bool:
    """Return whether ranks get a GPU each: as the recipe says, with ``auto`` if the cluster has any."""
    device = recipe.model.device
    return resources.get("GPU", 0) > 0 if device == "auto" else device == "cuda"


def rank_bundle(recipe: Recipe, on_gpu: bool) -> Bundle:
    """Return what a rank reserves: its threads, the processes of its environments, and its GPU.

    Environments and rewards in threads share the rank's own CPU.
    """
    threads = 1 if on_gpu else recipe.model.threads or 1
    processes = recipe.episode.workers if recipe.episode.processes else 0
    return {"CPU": threads + processes} | ({"GPU": 1} if on_gpu else {})


def engine_bundle(recipe: Recipe, on_gpu: bool) -> Bundle:
    """Return what a vLLM server of its own reserves: the GPUs that divide its weights, of one node."""
    workers = recipe.engine.tensor_parallel
    return {"CPU": workers} | ({"GPU": workers} if on_gpu else {})


def bundles_of(recipe: Recipe, on_gpu: bool) -> list[Bundle]:
    """Return a bundle for each rank, then one for each engine of ``engine.count``."""
    ranks = [rank_bundle(recipe, on_gpu)] * recipe.trainer.ranks
    return [*ranks, *[engine_bundle(recipe, on_gpu)] * recipe.engine.count]


def check_fits(bundles: Sequence[Bundle], nodes: Sequence[Bundle]) -> None:
    """Raise unless the nodes of a cluster could hold all bundles if nothing else ran there.

    Args:
        bundles: what is asked.
        nodes: the resources of each node.
    """
    asked, there = total(bundles), total(nodes)
    short = [f"{name}s" for name in asked if asked[name] > there.get(name, 0)]
    whole = [sum(_fitting(bundle, node) for node in nodes) for bundle in bundles]
    if short or any(count < bundles.count(bundle) for count, bundle in zip(whole, bundles, strict=True)):
        each = "; ".join(in_words(node) for node in nodes[:4])
        equal = Counter(in_words(bundle) for bundle in bundles)
        raise RecipeError(
            f"the Ray cluster has too few {' and '.join(short) or 'nodes of this size'}",
            got=f"{in_words(there)}, of nodes: {each}",
            expected=f"{in_words(asked)}: "
            + ", ".join(f"{count} × ({text})" for text, count in equal.items()),
            remedy="start nodes, or ask for fewer ranks, engines or workers: `truing explain scale`",
        )


def total(bundles: Sequence[Bundle]) -> dict[str, float]:
    """Return the sum by resource."""
    names = dict.fromkeys(name for bundle in bundles for name in bundle)
    return {name: sum(bundle.get(name, 0) for bundle in bundles) for name in names}


def in_words(bundle: Bundle) -> str:
    """Return an amount for people: "8 CPU, 1 GPU"."""
    return ", ".join(f"{bundle.get(name, 0):g} {name}" for name in ("CPU", "GPU") if name in bundle) or "none"


def _fitting(bundle: Bundle, node: Bundle) -> int:
    """Return how many of a bundle a node holds."""
    return min(math.floor(node.get(name, 0) / amount) for name, amount in bundle.items())
