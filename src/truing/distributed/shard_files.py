"""Tables of tensors as safetensors files, one per table and rank, written by torch.distributed.checkpoint.

    trainable.safetensors                    a table of one rank
    trainable-00001-of-00002.safetensors     the first of two ranks: shards, with their offsets in the header

DCP plans which rank writes which shard, each once, and what a rank with other shards reads. Its own files
hold pickles, which can run code when they are read, so its ``StorageWriter`` here writes safetensors.
https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from truing.distributed.ranks import ONE, Ranks
from truing.utils.file_mode import share_weights

OFFSETS = "DCP_SHARDING_INFO"
"""Key of the header with ``{name: {"saved_offsets": [...]}}``, as DCP's own writer of safetensors has it."""


def save_tables(
    folder: Path, tables: Mapping[str, Mapping[str, Tensor]], ranks: Ranks, commit: Callable[[], None]
) -> None:
    """Write each table of tensors into a new folder; all ranks call this, each writes its own shards.

    Args:
        folder: removed and made anew by the first rank.
        tables: by name, of tensors by name; sharded tensors (DTensor), and equal ones on all ranks.
        ranks: this process among all.
        commit: called by the first rank once the files of all ranks are on disk; if it or a rank fails, all
            ranks raise that error.
    """
    tensors = {f"{table}/{name}": each.detach() for table in tables for name, each in tables[table].items()}
    with dcp_errors(ranks):
        state_dict_saver.save(
            tensors,
            storage_writer=ShardWriter(folder, list(tables), ranks, commit),
            planner=DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
            no_dist=ranks.size == 1,
        )


def shard_files(folder: Path, table: str) -> list[Path]:
    """Return the files of a table, by rank; a file that is missing among them is named too."""
    found = next(folder.glob(f"{table}-*-of-*.safetensors"), None)
    count = int(found.stem.rpartition("-")[2]) if found else 1
    return [folder / _file_name(table, rank, count) for rank in range(count)]


@contextmanager
def dcp_errors(ranks: Ranks = ONE) -> Iterator[None]:
    """Raise the error of a rank as it was, without DCP's envelope, and no warning that one rank is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            yield
        except CheckpointException as error:
            rank, (cause, _) = min(error.failures.items(), key=lambda failure: failure[0])
            if ranks.size > 1:
                cause.add_note(f"raised by rank {rank} of {ranks.size}")
            raise cause from None


class ShardWriter(StorageWriter):
    """Writes the shards of this rank: a file per table."""

    def __init__(self, folder: Path, tables: list[str], ranks: Ranks, commit: Callable[[], None]) -> None:
        self.folder, self.tables, self.ranks, self.commit = folder, tables, ranks, commit

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take the start of a save: a writer is for one."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Make the folder, before any rank writes."""
        if is_coordinator:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan of this rank."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans of all ranks."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the planned shards of each table; a rank without shards writes an empty file."""
        for table in self.tables:
            shards, offsets = dict[str, Tensor](), dict[str, Any]()
            for item in plan.items:
                of_table, _, name = item.index.fqn.partition("/")
                if of_table == table:
                    shards[name] = planner.resolve_data(item).cpu().contiguous()  # type: ignore[union-attr]
                    offsets[name] = {"saved_offsets": list(item.index.offset or ())}
            header = {OFFSETS: json.dumps(offsets)} if self.ranks.size > 1 else None
            _write(self.folder / _file_name(table, self.ranks.rank, self.ranks.size), shards, header)
        written: Future[list[WriteResult]] = Future()
        written.set_result([])  # the headers of the files say all
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Complete the folder: all ranks have written."""
        self.commit()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether DCP may choose this writer for a path by itself."""
        return False


def _file_name(table: str, rank: int, ranks: int) -> str:
    return f"{table}.safetensors" if ranks == 1 else f"{table}-{rank + 1:05d}-of-{ranks:05d}.safetensors"


def _write(path: Path, tensors: Mapping[str, Tensor], header: dict[str, str] | None) -> None:
    """Write tensors, without a copy in memory, and fsync the file."""
    save_file(dict(tensors), path, header)
    share_weights(path)
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
