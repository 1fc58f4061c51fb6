"""W&B's local log of a run (``run-*.wandb``), also of an offline one, read with wandb's own record type.

The file is a LevelDB log (https://github.com/google/leveldb/blob/main/doc/log_format.md) after a header of
7 bytes: blocks of 32 KiB with parts of records, each after a checksum, a length and a kind. The checksum is
CRC-32 of kind and part, where LevelDB has a masked CRC-32C. wandb 0.31 has the type of the records and no
reader of the file.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import Log, log_of_records
from truing.errors import RecordError

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32768
PART = struct.Struct("<IHB")  # checksum, length, kind
WHOLE, LAST = 1, 4


def found_in(folder: Path) -> list[Path]:
    """Return the logs of a folder, or of its runs."""
    inner = {path.resolve() for path in folder.glob("*run-*/*.wandb")}  # `latest-run` is a link to one
    return sorted(folder.glob("*.wandb")) or sorted(inner)


def read(path: Path) -> Log:
    """Return history and configuration of a run."""
    try:
        # wandb chooses the module of the installed protobuf, which makes its classes when it is imported
        from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise RecordError(
            "wandb is not installed",
            got=path,
            expected="its type of records",
            remedy="pip install wandb, or export the history as CSV: run.history().to_csv(…)",
        ) from error
    records, config = list[tuple[str, dict[str, Any]]](), dict[str, Any]()
    for data in _records(path):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            records.append((f"{path}, history {len(records) + 1},", _items(record.history.item)))
        elif kind in ("run", "config"):
            config |= _items((record.run.config if kind == "run" else record.config).update)
    return log_of_records("W&B's log", records, config)


def _items(items: Iterable[Any]) -> dict[str, Any]:
    """Return names and values; nested names are joined as in W&B."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records of a log, verified; an incomplete last record of a running log is left out."""
    data = path.read_bytes()
    if not data.startswith(HEADER):
        raise RecordError(
            f"{path} is not a log of W&B", got=data[:7], expected=HEADER, remedy="copy it again"
        )
    at, record = len(HEADER), b""
    while at + PART.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < PART.size:  # too little for a part: the rest of the block is padding
            at += left
            continue
        checksum, length, kind = PART.unpack_from(data, at)
        part = data[at + PART.size : at + PART.size + length]
        if len(part) < length:
            return
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum:
            raise RecordError(
                f"{path} is damaged",
                got=f"another checksum of the part at byte {at}",
                expected="parts as wandb wrote them",
                remedy="copy the file again, or export the history as CSV: run.history().to_csv(…)",
            )
        at += PART.size + length
        record += part
        if kind in (WHOLE, LAST):
            yield record
            record = b""
