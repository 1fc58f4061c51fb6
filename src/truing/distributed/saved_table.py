"""A table of tensors that ranks have saved, read whole or by any number of ranks."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from truing.distributed.shard_files import OFFSETS, dcp_errors, shard_files
from truing.errors import RecordError


class SavedTable(Mapping[str, Tensor]):
    """The tensors of a table, each whole and read when it is asked for; files are mapped into memory."""

    def __init__(self, folder: Path, table: str) -> None:
        self.files = shard_files(folder, table)
        self.shards: dict[MetadataIndex, Tensor] = {}  # by name and offset
        for file in self.files:
            self.shards |= _read(file)
        self.metadata = Metadata({})
        for index, shard in self.shards.items():
            _add_chunk(self.metadata.state_dict_metadata, index, shard)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.metadata.state_dict_metadata)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.metadata.state_dict_metadata)

    def __getitem__(self, name: str) -> Tensor:
        """Return a whole tensor."""
        saved = self.tensor_metadata(name)
        shards = [(chunk, self.shards[MetadataIndex(name, chunk.offsets)]) for chunk in saved.chunks]
        if len(shards) == 1:
            return shards[0][1]
        whole = torch.empty(saved.size, dtype=saved.properties.dtype)
        for chunk, shard in shards:
            whole[_region(chunk.offsets, chunk.sizes)] = shard
        return whole

    def tensor_metadata(self, name: str) -> TensorStorageMetadata:
        """Return shape, dtype and chunks of a tensor, which is not read."""
        saved = self.metadata.state_dict_metadata[name]
        assert isinstance(saved, TensorStorageMetadata)
        return saved

    def shapes(self) -> dict[str, torch.Size]:
        """Return the shapes of all tensors."""
        return {name: self.tensor_metadata(name).size for name in self}

    def load_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy saved tensors into those of the same names; into sharded ones only the shards of this rank.

        Ranks exchange nothing: each reads what it needs.
        """
        with dcp_errors():
            state_dict_loader.load(
                {name: tensor.detach() for name, tensor in tensors.items()},
                storage_reader=ShardReader(self),
                planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
                no_dist=True,
            )


def damaged_error(path: object, got: object) -> RecordError:
    """Return the error for a file of a checkpoint that is missing, or not as it was written."""
    return RecordError(
        f"{path} is missing or damaged",
        got=got,
        remedy="restore it from a copy, or write the name of an older checkpoint into checkpoints/last",
    )


class ShardReader(StorageReader):
    """Gives DCP the shards of a saved table."""

    def __init__(self, table: SavedTable) -> None:
        self.table = table

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take the start of a load: a reader is for one."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return which chunks there are."""
        return self.table.metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Take the start of reading: the files are open."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan of this rank."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the planned regions of shards into the tensors of this rank."""
        for item in plan.items:
            source = self.table.shards[item.storage_index][_region(item.storage_offsets, item.lengths)]
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether DCP may choose this reader for a path by itself."""
        return False


def _read(file: Path) -> dict[MetadataIndex, Tensor]:
    """Return the shards in a file; without offsets they are whole tensors."""
    try:
        with safe_open(file, framework="pt") as opened:
            offsets = json.loads((opened.metadata() or {}).get(OFFSETS, "{}"))
            shards = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 — no mapping
        return {
            MetadataIndex(name, offsets[name]["saved_offsets"] if offsets else [0] * shard.ndim): shard
            for name, shard in shards.items()
        }
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise damaged_error(file, error) from error


def _add_chunk(tensors: dict[str, Any], index: MetadataIndex, shard: Tensor) -> None:
    """Add a shard to the metadata of its tensor, which reaches as far as the last of its shards."""
    assert index.offset is not None
    end = [offset + length for offset, length in zip(index.offset, shard.shape, strict=True)]
    saved = tensors.setdefault(
        index.fqn, TensorStorageMetadata(TensorProperties(shard.dtype), torch.Size(end), [])
    )
    saved.size = torch.Size(map(max, saved.size, end))
    saved.chunks.append(ChunkStorageMetadata(index.offset, shard.shape))


def _region(offsets: torch.Size, lengths: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(offset, offset + length) for offset, length in zip(offsets, lengths, strict=True))
