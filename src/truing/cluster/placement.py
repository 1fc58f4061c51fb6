"""Places the ranks and engines of a run: one actor each, in the bundles of a placement group."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from truing.cluster.bundles import Bundle, check_fits, in_words, total
from truing.errors import RecipeError

PLACE_SECONDS = 60.0
"""Seconds for which a placement waits for other work on the cluster to end."""

RETURN_SECONDS = 300.0
"""Seconds for which a restart waits for lost nodes to return."""


def node_resources() -> list[Bundle]:
    """Return the resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def wait_for_nodes(bundles: Sequence[Bundle], say: Callable[[str], None]) -> None:
    """Return once the nodes could hold all bundles; a lost node may return.

    Raises:
        RecipeError: They still cannot after ``RETURN_SECONDS``.
    """
    end, said = time.monotonic() + RETURN_SECONDS, False
    while True:
        try:
            return check_fits(bundles, node_resources())
        except RecipeError as error:
            if time.monotonic() > end:
                raise
            if not said:
                say(f"waiting up to {RETURN_SECONDS:g} s for nodes: {error.what}, {error.got}")
            said = True
            time.sleep(1)


@contextmanager
def placed(bundles: Sequence[Bundle]) -> Iterator[PlacementGroup]:
    """Reserve bundles as long as the block runs, on as few nodes as they fit.

    Raises:
        RecipeError: Other work holds what is asked for.
    """
    group = placement_group([dict(bundle) for bundle in bundles], strategy="PACK")
    try:
        if not group.wait(PLACE_SECONDS):
            raise RecipeError(
                f"the Ray cluster had no room within {PLACE_SECONDS:g} s: other work holds its resources",
                got=f"free: {in_words(ray.available_resources())}",
                expected=in_words(total(bundles)),
                remedy="wait until that work has ended, or start nodes; `ray status` shows who holds what",
            )
        yield group
    finally:
        remove_placement_group(group)


def create_actor(kind: type, group: PlacementGroup, index: int, bundle: Bundle, *arguments: Any) -> Any:
    """Return an actor in a bundle of the group, in a process of its own that is never started again."""
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    options = {
        "num_cpus": bundle["CPU"],
        "num_gpus": bundle.get("GPU", 0),
        "scheduling_strategy": strategy,
        "max_restarts": 0,
        "max_task_retries": 0,
    }
    return ray.remote(kind).options(**options).remote(*arguments)
