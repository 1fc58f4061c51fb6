"""Converts the rows of a step to Arrow and back: a list column per token stream, a scalar column per fact.

IPC segments and Parquet files have the same schema. NaN stays NaN and is never null; only ``support_*`` is
null, for a sample whose sampling parameters truncate nothing, and ``routes*``, for one without expert routes.
A segment without any route has no column for them, as those of versions before routes were recorded.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from truing.record.rows import TRAINER_NUMBERS, SampleRow
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Support
from truing.utils.jsonl import dump_json, floats_from_json
from truing.utils.parse import parse_json

STREAMS = {  # token streams of a Sample
    "token_ids": (pa.int64(), torch.int64),
    "origin": (pa.uint8(), torch.uint8),
    "excluded": (pa.uint8(), torch.uint8),
    **dict.fromkeys(MASKS, (pa.bool_(), torch.bool)),
    **dict.fromkeys(FLOAT_STREAMS, (pa.float32(), torch.float32)),
}
SUPPORT = {"support_ids": (pa.int32(), torch.int32), "support_splits": (pa.int64(), torch.int64)}
TRAINER_STREAMS = dict.fromkeys(
    TRAINER_NUMBERS, (pa.float32(), torch.float32)
)  # token streams of a SampleRow
ROUTES = {  # flat, and their shape: layers, experts per token
    "routes": (pa.int16(), torch.int16),
    "routes_shape": (pa.int64(), torch.int64),
}
LIST_COLUMNS = STREAMS | TRAINER_STREAMS | SUPPORT | ROUTES
SAMPLE_SCALARS = {  # scalars of a Sample
    "sample_id": pa.string(),
    "rollout_id": pa.string(),
    "group_id": pa.string(),
    "task_id": pa.string(),
    "family": pa.string(),
    "prompt_hash": pa.string(),
    "prompt_length": pa.int64(),
    "old_source": pa.string(),
    "reward": pa.float64(),
    "truncated": pa.bool_(),
    "bootstrap_value": pa.float64(),
}
TURN = pa.struct(
    {
        "start": pa.int64(),
        "end": pa.int64(),
        "finish_reason": pa.string(),
        "sampler_version": pa.int64(),
        "weight_digest": pa.string(),
        "reward": pa.float64(),
    }
)
JSON_COLUMNS = ("sampling_params", "reward_parts", "messages", "outcome")
SCHEMA = pa.schema(
    {
        "stage": pa.string(),
        "step": pa.int64(),
        **SAMPLE_SCALARS,
        "text": pa.string(),
        "status": pa.string(),
        "ended_by": pa.string(),
        "error": pa.string(),
        "inner_step": pa.int64(),
        **dict.fromkeys(JSON_COLUMNS, pa.string()),
        "turns": pa.list_(TURN),
        **{name: pa.list_(arrow) for name, (arrow, _) in LIST_COLUMNS.items()},
    }
)

SCHEMA_WITHOUT_ROUTES = pa.schema([field for field in SCHEMA if field.name not in ROUTES])


def warm_up() -> None:
    """Convert a list, so that pyarrow loads pandas now and not during a step (half a second)."""
    pa.array([0])


def encode(stage: str, step: int, rows: Sequence[SampleRow]) -> bytes:
    """Return the rows as an Arrow IPC file; equal rows give equal bytes."""
    return encode_table(table_of(stage, step, rows))


def encode_table(table: pa.Table) -> bytes:
    """Return a table of rows as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    if table["routes"].null_count == table.num_rows:
        table = table.drop_columns(list(ROUTES))
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> pa.Table:
    """Return the table of an Arrow IPC file with a correct checksum; raise ValueError for another schema.

    A checksum does not prove who wrote the file, so offsets are validated before use.
    """
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    check_schema(table.schema)
    table.validate(full=True)
    return with_routes(table)


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError unless a file has the columns of rows, with routes or without."""
    if not (schema.equals(SCHEMA) or schema.equals(SCHEMA_WITHOUT_ROUTES)):
        raise ValueError("other columns than those of rows")


def with_routes(table: pa.Table) -> pa.Table:
    """Return a table with all columns: null for routes that its file does not have."""
    for name in ROUTES:
        if name not in table.schema.names:
            field = SCHEMA.field(name)
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def table_of(stage: str, step: int, rows: Sequence[SampleRow]) -> pa.Table:
    """Return the rows as an Arrow table."""
    samples = [row.sample for row in rows]
    supports = [sample.support for sample in samples]
    columns = {
        "stage": [stage] * len(rows),
        "step": [step] * len(rows),
        **{name: [getattr(sample, name) for sample in samples] for name in SAMPLE_SCALARS},
        "text": [row.text for row in rows],
        "status": [row.status for row in rows],
        "ended_by": [row.ended_by for row in rows],
        "error": [row.error for row in rows],
        "inner_step": [row.inner_step for row in rows],
        "sampling_params": [_sampling_params_text(sample.sampling_params) for sample in samples],
        "reward_parts": [dump_json(row.reward_parts).decode() for row in rows],
        "messages": [dump_json(row.messages).decode() for row in rows],
        "outcome": [dump_json(row.outcome).decode() for row in rows],
        "turns": [[vars(turn) for turn in sample.turns] for sample in samples],
    }
    streams = {
        **{name: [getattr(sample, name) for sample in samples] for name in STREAMS},
        **{name: [getattr(row, name) for row in rows] for name in TRAINER_STREAMS},
        "routes": [None if sample.routes is None else sample.routes.flatten() for sample in samples],
        "routes_shape": [
            None if sample.routes is None else torch.tensor(sample.routes.shape[1:]) for sample in samples
        ],
        "support_ids": [None if support is None else support.ids for support in supports],
        "support_splits": [None if support is None else support.splits for support in supports],
    }
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    arrays |= {name: _list_column(tensors, LIST_COLUMNS[name]) for name, tensors in streams.items()}
    return pa.table(arrays, schema=SCHEMA)


def rows_of(table: pa.Table) -> tuple[SampleRow, ...]:
    """Return the rows of a table that ``table_of`` made."""
    streams = {name: _tensors(table[name], dtype) for name, (_, dtype) in LIST_COLUMNS.items()}
    facts = {name: table[name].to_pylist() for name in SCHEMA.names if name not in streams}
    return tuple(
        _row(
            {name: values[i] for name, values in facts.items()},
            {name: tensors[i] for name, tensors in streams.items()},
        )
        for i in range(table.num_rows)
    )


def _row(facts: dict, streams: dict) -> SampleRow:
    """Return a row from its scalars and its tensors [T], by column name."""
    sample = Sample(
        **{name: facts[name] for name in SAMPLE_SCALARS},
        **{name: streams[name] for name in STREAMS},
        turns=tuple(
            TurnSpan(**turn | {"finish_reason": FinishReason(turn["finish_reason"])})
            for turn in facts["turns"]
        ),
        sampling_params=_parse_sampling_params(facts["sampling_params"]),
        support=None
        if streams["support_splits"] is None
        else Support(streams["support_ids"], streams["support_splits"]),
        routes=None if streams["routes"] is None else streams["routes"].view(-1, *streams["routes_shape"]),
    )
    return SampleRow(
        sample=sample,
        text=facts["text"],
        status=Status(facts["status"]),
        reward_parts=floats_from_json(parse_json(facts["reward_parts"])),
        messages=tuple(parse_json(facts["messages"])),
        outcome=parse_json(facts["outcome"]),
        ended_by=EndedBy(facts["ended_by"]),
        error=facts["error"],
        inner_step=facts["inner_step"],
        **{name: streams[name] for name in TRAINER_STREAMS},
    )


@cache
def _sampling_params_text(sampling_params: SamplingParams) -> str:
    return dump_json(asdict(sampling_params)).decode()


@cache
def _parse_sampling_params(text: str) -> SamplingParams:
    fields = parse_json(text)
    return SamplingParams(**fields | {"stop_ids": tuple(fields["stop_ids"])})


def _list_column(tensors: Sequence[Tensor | None], kinds: tuple[pa.DataType, torch.dtype]) -> pa.ListArray:
    """Return tensors [T] as a list column, converted together because Arrow is slow on many small arrays."""
    arrow, dtype = kinds
    present = [tensor.detach() for tensor in tensors if tensor is not None]
    values = torch.cat([*present, torch.empty(0, dtype=dtype)]).to("cpu", dtype).numpy()
    lengths = [0 if tensor is None else len(tensor) for tensor in tensors]
    absent = pa.array([tensor is None for tensor in tensors], pa.bool_())
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values, arrow), mask=absent)


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    """Return the concatenated values of a list column."""
    return column.combine_chunks().flatten().to_numpy(zero_copy_only=False)


def _lengths(column: pa.ChunkedArray) -> list[int | None]:
    """Return the length of each list of a column; None for null."""
    return pc.list_value_length(column).to_pylist()


def _tensors(column: pa.ChunkedArray, dtype: torch.dtype) -> list[Tensor | None]:
    """Return a list column as tensors [T] that share its memory; None for null."""
    lengths = _lengths(column)
    flat = torch.tensor(_flat(column), dtype=dtype)
    parts = iter(flat.split([length for length in lengths if length is not None]))
    return [None if length is None else next(parts) for length in lengths]
