"""Expert routes are an optional part of the record."""

from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from recorded import make_sample, make_table

from truing.errors import InvalidValueError
from truing.record import RunReader, RunWriter, compact
from truing.record.schema import SCHEMA_WITHOUT_ROUTES
from truing.record.segments import decode, encode

ROUTES = torch.tensor([[[0, 3]], [[2, 1]], [[-1, -1]]], dtype=torch.int16)


def write(run, *rows):
    with RunWriter(run) as writer:
        for step, row in enumerate(rows):
            writer.write_step(make_table(step, [row]))


@pytest.mark.parametrize("compacted", [False, True])
def test_routes_read_back_with_their_shape_and_rows_without_any_have_none(tmp_path, compacted):
    write(tmp_path, make_sample(routes=ROUTES), make_sample())
    if compacted:
        compact(tmp_path)
    with_routes, without = (RunReader(tmp_path).find_table("grpo", step).sample(0) for step in (0, 1))
    assert torch.equal(with_routes.routes, ROUTES)
    assert with_routes.routes.dtype == torch.int16
    assert without.routes is None


def test_a_segment_without_routes_has_no_column_for_them():
    data = encode(make_table(0, [make_sample()]))
    schema = pa.ipc.open_file(pa.py_buffer(data)).schema
    assert schema.equals(SCHEMA_WITHOUT_ROUTES)
    assert decode(data).schema.names[-2:] == ["routes", "routes_shape"]


@pytest.mark.parametrize("routes", [ROUTES[:2], ROUTES[..., 0], ROUTES.long()])
def test_routes_of_another_shape_are_refused(routes):
    with pytest.raises(InvalidValueError, match="expert routes"):
        replace(make_sample(), routes=routes)
