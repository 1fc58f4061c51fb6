"""A digest says whether rows are the same, whatever they were read from and whatever lay beside them."""

import pyarrow as pa
import torch
from recorded import make_passes, make_sample, make_table, support_of

from truing.record.digest import content_digest, content_digests
from truing.record.schema import SCHEMA
from truing.record.segments import table_of
from truing.types.passes import PASS_STREAMS
from truing.types.sample import FLOAT_STREAMS
from truing.types.sampling_params import SamplingParams


def nested(values):
    return pa.table({"x": pa.array(values, pa.list_(pa.struct({"s": pa.string(), "n": pa.float32()})))})


def test_a_digest_distinguishes_what_differs_and_nothing_else():
    tables = [
        nested(values)
        for values in (
            [],
            [None],
            [[]],
            [[None]],
            [[{"s": "ab", "n": 0.0}]],
            [[{"s": "ab", "n": -0.0}]],
            [[{"s": "ab", "n": None}]],
            [[{"s": None, "n": 0.0}]],
            [[{"s": "", "n": 0.0}]],
            [[{"s": "a", "n": 0.0}, {"s": "b", "n": 0.0}]],
            [[{"s": "a", "n": 0.0}], [{"s": "b", "n": 0.0}]],
            [[{"s": "b", "n": 0.0}], [{"s": "a", "n": 0.0}]],
        )
    ]
    digests = [content_digest(table) for table in tables]
    assert len(set(digests)) == len(tables)
    whole = pa.concat_tables(tables)
    assert content_digests(whole, [len(table) for table in tables]) == digests
    assert content_digests(whole.combine_chunks(), [len(table) for table in tables]) == digests
    at = 0
    for table, digest in zip(tables, digests, strict=True):
        assert content_digest(whole.slice(at, len(table))) == digest
        at += len(table)


def test_every_column_is_in_the_digest():
    sampling_params = SamplingParams(top_k=2)
    rows = [
        make_sample(
            f"s{i}",
            sampling_params=sampling_params,
            support=support_of(0, i, 1),
            routes=torch.full((3, 2 + i, 2), i, dtype=torch.int16),
            seed=i,
            **{name: torch.full((3,), float(i)) for name in FLOAT_STREAMS},
        )
        for i in range(2)
    ]
    passes = make_passes(rows, **{name: torch.arange(6.0) for name in PASS_STREAMS})
    table = table_of(make_table(0, rows, passes=passes))
    values = {content_digest(table)}
    for at, field in enumerate(SCHEMA):
        other = table.set_column(at, field, [table[field.name].combine_chunks().take(pa.array([1, None]))])
        values.add(content_digest(other))
    assert len(values) == len(SCHEMA) + 1
