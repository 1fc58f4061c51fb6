"""Starts the ranks of a run through Ray: the same processes as torchrun's launcher, on any nodes."""

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import ray
from ray.util.placement_group import PlacementGroup

from truing.cluster.actor_calls import Member, MemberLostError, answers, ask
from truing.cluster.bundles import Bundle, bundles_of, check_fits, total, uses_gpus
from truing.cluster.engine_actor import EngineActor
from truing.cluster.placement import PLACE_SECONDS, RETURN_SECONDS, create_actor, node_resources, placed
from truing.cluster.rank_actor import RankActor
from truing.cluster.supervisor import Supervisor
from truing.config import Recipe
from truing.distributed.ending import LOST_ANOTHER, Ending
from truing.engines.vllm.placed_servers import PlacedEngines
from truing.errors import RecipeError

START_SECONDS = 600.0
"""Seconds in which the Ray process of a rank or an engine must start; imports take long on many nodes."""

END_SECONDS = 60.0
"""Seconds in which actors must end what they started, before they are killed with it."""


@dataclass(frozen=True)
class RayLauncher:
    """Starts the ranks of a recipe, and the engines that it asks for.

    Attributes:
        recipe: of the run.
        folder: the working folder of the ranks.
        output: a folder on a file system of all nodes, for what ranks and engines print.
        say: prints a line.
    """

    recipe: Recipe
    folder: Path
    output: Path
    say: Callable[[str], None]

    @cached_property
    def on_gpu(self) -> bool:
        """Whether ranks have a GPU each; a restart keeps to it."""
        return uses_gpus(self.recipe, total(node_resources()))

    def launch(self, arguments: Sequence[str], is_restart: bool) -> Ending:
        """Run Python with these arguments in each rank; return how they ended.

        The first rank's output goes to this terminal.

        Raises:
            TruingError: The cluster cannot hold the ranks and engines, or its nodes do not see the folders.
        """
        bundles = bundles_of(self.recipe, self.on_gpu)
        if not is_restart:
            check_fits(bundles, node_resources())
        limit = RETURN_SECONDS if is_restart else PLACE_SECONDS
        try:
            with placed(bundles, limit, self.say) as group, self._actors(group, bundles) as (ranks, engines):
                return self._run(arguments, ranks, engines)
        except MemberLostError as error:
            return Ending(LOST_ANOTHER, f"{error.what} ({error.got})")

    @contextmanager
    def _actors(
        self, group: PlacementGroup, bundles: Sequence[Bundle]
    ) -> Iterator[tuple[Sequence[Member], Sequence[Member]]]:
        """Create the actors of ranks and engines; at the end of the block, end them and their processes."""
        count, members = self.recipe.trainer.ranks, list[Member]()
        try:
            for rank, bundle in enumerate(bundles[:count]):
                members.append(Member(f"rank {rank}", create_actor(RankActor, group, rank, bundle)))
            # neighbours share a node: weights are gathered within groups of consecutive ranks
            by_node = sorted(self._located(members), key=lambda member: (member.address, member.node_id))
            members[:] = [replace(member, name=f"rank {rank}") for rank, member in enumerate(by_node)]
            self._check_folders(members)
            for number, bundle in enumerate(bundles[count:]):
                actor = create_actor(EngineActor, group, count + number, bundle)
                members.append(Member(f"engine {number}", actor))
            members[count:] = self._located(members[count:])
            yield members[:count], members[count:]
        finally:
            _end(members)

    def _located(self, members: Sequence[Member]) -> list[Member]:
        """Return the members with their nodes, once their processes have started."""
        calls = {member.actor.place.remote(): member for member in members}
        places = dict(zip(calls.values(), answers(calls, "starting", START_SECONDS), strict=True))
        return [Member(each.name, each.actor, *places[each]) for each in members]

    def _check_folders(self, ranks: Sequence[Member]) -> None:
        """Raise unless every node sees the working folder, and files next to the run directory."""
        self.output.mkdir(parents=True, exist_ok=True)
        token, text = self.output / "seen-by-all-nodes", secrets.token_hex(8)
        token.write_text(text, encoding="utf-8")
        missing = ask(ranks, "looking for the run directory", "missing", str(self.folder), token, text)
        token.unlink()
        different = [f"{rank}: {folder}" for rank, folder in zip(ranks, missing, strict=True) if folder]
        if different:
            raise RecipeError(
                "not all nodes see the folders of the run",
                got="; ".join(different[:4]),
                expected="the working folder, and the folder of --out, as on this node",
                remedy="start the run in a folder of a file system that all nodes share",
            )

    def _run(self, arguments: Sequence[str], ranks: Sequence[Member], engines: Sequence[Member]) -> Ending:
        """Start the engines, then the ranks; follow all until the ranks have ended."""
        weights, logs = self.output / "weights", self._new_folder()
        try:
            variables = self._start_engines(engines, weights, logs)
            (port,) = ask(ranks[:1], "looking for a free port", "free_port")
            common = {**variables, "MASTER_ADDR": ranks[0].address, "MASTER_PORT": str(port)}
            calls = {}
            for rank, member in enumerate(ranks):
                env = {**common, "RANK": str(rank), "WORLD_SIZE": str(len(ranks)), "LOCAL_RANK": "0"}
                call = member.actor.start.remote(arguments, str(self.folder), env, logs / str(rank))
                calls[call] = member
            answers(calls, "starting the ranks", START_SECONDS)
            return Supervisor(ranks, engines, self.say).run()
        finally:
            shutil.rmtree(weights, ignore_errors=True)

    def _new_folder(self) -> Path:
        """Return a new folder for what the ranks and engines of a start print."""
        number = len(list(self.output.glob("start-*"))) + 1
        folder = self.output / f"start-{number}"
        folder.mkdir()
        return folder

    def _start_engines(self, engines: Sequence[Member], weights: Path, logs: Path) -> Mapping[str, str]:
        """Start the engines; return what tells ranks of them."""
        if not engines:
            return {}
        weights.mkdir(exist_ok=True)
        table = self.recipe.model_dump(mode="json", exclude_none=True)
        device, calls = "cuda" if self.on_gpu else "cpu", {}
        for number, engine in enumerate(engines):
            log = logs / f"engine-{number}.log"
            calls[engine.actor.start.remote(table, device, log)] = engine
        limit = self.recipe.engine.timeout + START_SECONDS
        urls = dict(zip(calls.values(), answers(calls, "starting the engines", limit), strict=True))
        return PlacedEngines([urls[engine] for engine in engines], weights).variables()


def _end(members: Sequence[Member]) -> None:
    """End what the actors started, then the actors."""
    stops = [member.actor.stop.remote() for member in members]
    if stops:
        ray.wait(stops, num_returns=len(stops), timeout=END_SECONDS)
    for member in members:
        ray.kill(member.actor)
