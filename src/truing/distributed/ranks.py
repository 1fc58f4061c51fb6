"""The ranks of a run: processes that execute the same program and exchange values.

All ranks call the same exchanges in the same order. Each exchange has a limit, and its error names the
exchange. With one rank nothing is sent.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from truing.distributed.packed_table import pack, unpack
from truing.errors import DistributedError, LostRankError, RecipeError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of a run."""

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None  # over which FSDP2 holds weights; None if one rank needs no FSDP2
    group: dist.ProcessGroup | None = None  # that exchanges; None is the group of all ranks

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the run directory."""
        return self.rank == 0

    @property
    def replicas(self) -> int:
        """Groups of ranks that each hold all weights."""
        return self.mesh.size(0) if self.mesh is not None and self.mesh.ndim > 1 else 1

    def with_mesh(self, device: str, replicate: int) -> "Ranks":
        """Return the same ranks with a mesh over which FSDP2 holds weights.

        Args:
            device: ``cpu`` or ``cuda``.
            replicate: groups of ranks that each hold all weights, sharded within the group.
        """
        sizes = {"replicate": replicate, "shard": self.size // replicate}
        if replicate == 1:
            del sizes["replicate"]
        with _named("making the mesh of ranks"):
            mesh = init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        return replace(self, mesh=mesh)

    def with_own_group(self) -> "Ranks":
        """Return the same ranks for exchanges that may meet others: of a second thread, or of other code."""
        return self if self.size == 1 else replace(self, group=dist.new_group(backend="gloo"))

    def in_main_memory(self) -> "Ranks":
        """Return the same ranks with a mesh of CPUs over the same groups: for parts in main memory."""
        if self.mesh is None or self.mesh.device_type == "cpu":
            return self
        groups, names = self.mesh.get_all_groups(), self.mesh.mesh_dim_names
        return replace(
            self,
            mesh=DeviceMesh.from_group(
                groups if len(groups) > 1 else groups[0], "cpu", self.mesh.mesh, mesh_dim_names=names
            ),
        )

    def gather(self, what: str, value: T) -> list[T]:
        """Return the values of all ranks, in their order; ``what`` names the exchange in errors."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _named(what):
            dist.all_gather_object(values, value, group=self.group)
        return values

    def together(self, what: str, compute: Callable[[], T]) -> T:
        """Return what ``compute`` returns on this rank; if it fails on one, its error is raised on all."""
        if self.size == 1:
            return compute()
        try:
            value, failure = compute(), None
        except Exception as error:  # noqa: BLE001 — raised below, on every rank
            value, failure = None, error
        for rank, error in enumerate(self.gather(what, failure)):
            if error is not None:
                error.add_note(f"raised by rank {rank} of {self.size}")
                raise error
        return value  # type: ignore[return-value]

    def gather_results(self, what: str, compute: Callable[[], T]) -> list[T]:
        """Return what ``compute`` returns on each rank; if it fails on one, its error is raised on all."""
        return self.gather(what, self.together(what, compute))

    def gather_table(self, what: str, table: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the entries of the tables of all ranks."""
        if self.size == 1:
            return table
        parts = self.gather(what, pack(table))
        return {name: tensor for part in parts for name, tensor in unpack(part).items()}

    def on_first(self, what: str, compute: Callable[[], T]) -> T:
        """Return on all ranks what ``compute`` returns on the first; only that one calls it."""
        return self.gather_results(what, lambda: compute() if self.is_first else None)[0]  # type: ignore[return-value]

    def sum(self, what: str, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.size == 1:
            return tensor
        total = tensor.clone()
        with _named(what):
            dist.all_reduce(total, group=self.group)
        return total

    def check_same(self, values: Mapping[str, object], remedy: str) -> None:
        """Raise on all ranks, with its name, if one of these values differs between them."""
        tables = self.gather(f"the comparison of {next(iter(values))}", values)
        for what in dict.fromkeys(name for table in tables for name in table):
            first, *others = (table.get(what) for table in tables)
            different = [f"rank {r}: {each!s:.200}" for r, each in enumerate(others, 1) if each != first]
            if different:
                raise DistributedError(
                    f"the ranks differ in {what}",
                    got="; ".join(different[:3]),
                    expected=f"rank 0: {first!s:.200}",
                    remedy=remedy,
                )


TRANSPORTS = ("gloo", "nccl", "c10d")
"""Names in the errors of an exchange whose other side has ended."""

ONE = Ranks()
"""The only rank of a run in one process."""


def this_process() -> Ranks:
    """Return the rank that the launcher gave this process; without a launcher the only one."""
    return Ranks(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def is_launched() -> bool:
    """Return whether a launcher started this process as a rank."""
    return {"RANK", "WORLD_SIZE"} <= os.environ.keys()


def check_started(ranks: int) -> None:
    """Raise if the launcher started another number of ranks than the recipe declares."""
    started = this_process().size
    if started != ranks:
        raise RecipeError(
            "the number of processes is not that of the recipe",
            got=f"{started} started, trainer.ranks = {ranks}",
            remedy=f"use `truing train RECIPE --ranks {ranks}`, or torchrun --nproc-per-node {ranks}",
        )


def join(device: str, timeout: float, *, group_of_one: bool = False) -> Ranks:
    """Join the process group of the launcher, once per process; without a launcher there is none.

    Args:
        device: of the model, ``cpu`` or ``cuda``; it selects gloo or NCCL.
        timeout: seconds after which an exchange fails.
        group_of_one: whether weights are held by FSDP2 also with one rank: then the process is a group of its
            own, without a connection to any other.
    """
    ranks = this_process()
    if ranks.size == 1 and not group_of_one:
        return ranks
    alone = {}
    if ranks.size == 1:
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]  documented under this name
        alone = {"store": store, "rank": 0, "world_size": 1}
    if device == "cuda" and ranks.size > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with _named("joining the process group"):
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **alone)
            atexit.register(dist.destroy_process_group)
    return ranks


@contextmanager
def named_losses(ranks: Ranks) -> Iterator[None]:
    """Raise errors of the transport within the block as errors that say that another rank is lost."""
    try:
        yield
    except RuntimeError as error:
        if ranks.size == 1 or not any(name in str(error).lower() for name in TRANSPORTS):
            raise
        raise _lost("training", error) from error


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Raise errors of the process group as errors that name the exchange."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise _lost(what, error) from error


def _lost(what: str, error: Exception) -> LostRankError:
    """Return the error that names an exchange in which another rank did not take part."""
    return LostRankError(
        f"{what}: another rank did not take part",
        got=" ".join(str(error).split())[:300],
        remedy="the log of the rank that ended first has the cause; resume with --resume",
    )
