"""Places the ranks and engines of a run: one actor each, in the bundles of a placement group."""

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

NOTICE_SECONDS = 3.0
"""Seconds after which a wait is told."""


def node_resources() -> list[Bundle]:
    """Return the resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def placed(bundles: Sequence[Bundle], limit: float, say: Callable[[str], None]) -> Iterator[PlacementGroup]:
    """Reserve bundles as long as the block runs, on as few nodes as they fit.

    Args:
        bundles: what each rank and engine needs.
        limit: seconds to wait for nodes, or for other work to end.
        say: prints a line.

    Raises:
        RecipeError: The cluster still has no room.
    """
    group = placement_group([dict(bundle) for bundle in bundles], strategy="PACK")
    try:
        if not group.wait(min(NOTICE_SECONDS, limit)):
            say(f"waiting up to {limit:g} s for {in_words(total(bundles))} on the Ray cluster")
            if not group.wait(limit):
                check_fits(bundles, node_resources())
                raise RecipeError(
                    f"the Ray cluster had no room within {limit:g} s: other work holds its resources",
                    got=f"free: {in_words(ray.available_resources())}",
                    expected=in_words(total(bundles)),
                    remedy="wait until it has ended, or start nodes; `ray status` shows who holds what",
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
