"""Converts the samples of a step to Arrow and back: the rows of an IPC segment or a Parquet file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from truing.record.schema import (
    LIST_COLUMNS,
    ROUTES,
    SAMPLE_SCALARS,
    SCHEMA,
    SUPPORT,
    check_schema,
    with_routes,
)
from truing.types.passes import PASS_COLUMNS, PASS_STREAMS, Passes
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.step_table import SAMPLE_STREAMS, StepNumbers, StepTable, if_any, starts_of
from truing.types.token import Excluded, Origin, Support
from truing.utils.jsonl import dump_json, floats_from_json
from truing.utils.parse import parse_json


def warm_up() -> None:
    """Convert a list, so that pyarrow loads pandas now and not during a step (half a second)."""
    pa.array([0])


def encode(step: StepTable) -> bytes:
    """Return the samples of a step as an Arrow IPC file; equal steps give equal bytes."""
    return encode_table(table_of(step))


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


def table_of(step: StepTable) -> pa.Table:
    """Return the samples of a step as an Arrow table, a row each."""
    samples, passes = step.samples, step.passes
    count = torch.bincount(passes.sample, minlength=len(samples)).tolist()  # passes of each sample
    supports = step.supports or [None] * len(samples)
    routes = step.routes or [None] * len(samples)
    columns = {
        "stage": [step.stage] * len(samples),
        "step": [step.step] * len(samples),
        **{name: [getattr(sample, name) for sample in samples] for name in SAMPLE_SCALARS},
        "sampling_params": [_sampling_params_text(sample.sampling_params) for sample in samples],
        **{
            name: [dump_json(getattr(sample, name)).decode() for sample in samples]
            for name in ("reward_parts", "messages", "outcome")
        },
        "turns": [[vars(turn) for turn in sample.turns] for sample in samples],
    }
    ragged = {
        "support_ids": [None if each is None else each.ids for each in supports],
        "support_splits": [None if each is None else each.splits for each in supports],
        "routes": [None if each is None else each.flatten() for each in routes],
        "routes_shape": [None if each is None else torch.tensor(each.shape[1:]) for each in routes],
    }
    of_passes = [n * number for n, number in zip(step.lengths, count, strict=True)]
    lengths = dict.fromkeys(SAMPLE_STREAMS, step.lengths) | dict.fromkeys(PASS_STREAMS, of_passes)
    lengths |= dict.fromkeys(PASS_COLUMNS, count)
    flat = {**step.streams, **passes.streams, **{name: getattr(passes, name) for name in PASS_COLUMNS}}
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    arrays |= {name: _ragged_column(tensors, LIST_COLUMNS[name]) for name, tensors in ragged.items()}
    for name, each in lengths.items():
        arrays[name] = (
            _list_column(flat[name], each, LIST_COLUMNS[name])
            if name in flat
            else pa.nulls(len(samples), SCHEMA.field(name).type)
        )
    return pa.table(arrays, schema=SCHEMA)


def step_table_of(table: pa.Table, numbers: StepNumbers) -> StepTable:
    """Return the step whose samples are the rows of a table; raise ValueError if its columns disagree."""
    facts = {name: table[name].to_pylist() for name in SCHEMA.names if name not in LIST_COLUMNS}
    samples = [_sample({name: values[i] for name, values in facts.items()}) for i in range(table.num_rows)]
    lengths, count = (
        [number or 0 for number in _lengths(table[name])] for name in ("token_ids", "optimizer_step")
    )
    of_passes = [n * number for n, number in zip(lengths, count, strict=True)]
    streams = {name: _stream(table, name, lengths) for name in SAMPLE_STREAMS}
    pass_streams = {name: _stream(table, name, of_passes) for name in PASS_STREAMS}
    columns = {name: _stream(table, name, count) for name in PASS_COLUMNS}
    none = torch.zeros(0, dtype=torch.int64)
    passes = Passes(
        sample=torch.repeat_interleave(torch.tensor(count, dtype=torch.int64)),
        **{name: none if each is None else each for name, each in columns.items()},
        streams={name: stream for name, stream in pass_streams.items() if stream is not None},
    )
    ragged = {name: _tensors(table[name], LIST_COLUMNS[name][1]) for name in (*SUPPORT, *ROUTES)}
    supports = [
        None if splits is None or ids is None else Support(ids, splits)
        for ids, splits in zip(ragged["support_ids"], ragged["support_splits"], strict=True)
    ]
    routes = [
        None if flat is None or shape is None else flat.view(-1, *shape.tolist())
        for flat, shape in zip(ragged["routes"], ragged["routes_shape"], strict=True)
    ]
    _check_codes(streams, supports, lengths)
    return StepTable(
        **vars(numbers.only_numbers),
        samples=samples,
        starts=starts_of(lengths),
        streams={name: stream for name, stream in streams.items() if stream is not None},
        passes=passes,
        supports=if_any(supports),
        routes=if_any(routes),
    )


def _check_codes(
    streams: Mapping[str, Tensor | None], supports: Sequence[Support | None], lengths: Sequence[int]
) -> None:
    """Raise ValueError unless codes have a meaning, and supports cover their tokens."""
    for name, codes in (("origin", Origin), ("excluded", Excluded)):
        stream = streams[name]
        if stream is not None and len(stream) and int(stream.max()) not in codes.__members__.values():
            raise ValueError(f"column {name} has the code {int(stream.max())}, which means nothing")
    for support, length in zip(supports, lengths, strict=True):
        if support is not None and len(support.splits) != length + 1:
            raise ValueError(f"a support has {len(support.splits)} splits for {length} tokens")


def _sample(facts: dict[str, Any]) -> SampleFacts:
    """Return the facts of a sample from its values by column name."""
    return SampleFacts(
        **{name: facts[name] for name in SAMPLE_SCALARS},
        turns=tuple(
            TurnSpan(**turn | {"finish_reason": FinishReason(turn["finish_reason"])})
            for turn in facts["turns"]
        ),
        sampling_params=_parse_sampling_params(facts["sampling_params"]),
        reward_parts=floats_from_json(parse_json(facts["reward_parts"])),
        messages=tuple(parse_json(facts["messages"])),
        outcome=parse_json(facts["outcome"]),
    )


@cache
def _sampling_params_text(sampling_params: SamplingParams) -> str:
    return dump_json(asdict(sampling_params)).decode()


@cache
def _parse_sampling_params(text: str) -> SamplingParams:
    fields = parse_json(text)
    return SamplingParams(**fields | {"stop_ids": tuple(fields["stop_ids"])})


def _list_column(
    flat: Tensor, lengths: Sequence[int], kinds: tuple[pa.DataType, torch.dtype]
) -> pa.ListArray:
    """Return a stream as a list column with these lengths."""
    arrow, dtype = kinds
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(flat.detach().to("cpu", dtype).numpy(), arrow))


def _ragged_column(tensors: Sequence[Tensor | None], kinds: tuple[pa.DataType, torch.dtype]) -> pa.ListArray:
    """Return tensors as a list column, converted together because Arrow is slow on many small arrays."""
    arrow, dtype = kinds
    values = torch.cat([torch.empty(0, dtype=dtype), *(each for each in tensors if each is not None)])
    offsets = pa.array([0, *accumulate(0 if each is None else len(each) for each in tensors)], pa.int32())
    absent = pa.array([each is None for each in tensors], pa.bool_())
    return pa.ListArray.from_arrays(offsets, pa.array(values.to(dtype).numpy(), arrow), mask=absent)


def _stream(table: pa.Table, name: str, lengths: Sequence[int]) -> Tensor | None:
    """Return a list column as one stream; None if no row has it.

    Raise ValueError unless its lists have these lengths.
    """
    column = table[name]
    if column.null_count == table.num_rows:
        return None
    if _lengths(column) != list(lengths):
        raise ValueError(f"the lists of column {name} have other lengths than the tokens")
    return torch.tensor(_flat(column), dtype=LIST_COLUMNS[name][1])


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
