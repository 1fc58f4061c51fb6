"""A run directory may come from a stranger: no name and no link in it leads out of it."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from recorded import write_steps

from truing.errors import RecordError
from truing.record import RunReader, RunWriter, archive_undone, compact
from truing.record.index import SegmentRef
from truing.record.sample_columns import SampleColumns
from truing.record.schema import SCHEMA
from truing.record.segments import encode_table, table_of
from truing.utils.atomic_files import sha256

NAMES = [
    "../steps.jsonl",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/b.arrow",
    "..\\b.arrow",
    "a\0.arrow",
    "a\n.arrow",
    "a" * 5000 + "/.arrow",
    5,
    None,
    ["x.arrow"],
]


def rename(run, name, sha=None):
    """Let the first line name another file."""
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    lines[0]["segment"] |= {"file": name} | ({"sha256": sha} if sha else {})
    (run / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def uses(run):
    """Everything that follows the name of a segment."""
    reader, columns = RunReader(run), SampleColumns(run)
    place = SegmentRef.from_step(reader.steps()[0])
    return {
        "samples": lambda: reader.find_table("grpo", 0),
        "compact": lambda: compact(run),
        "set_aside": lambda: archive_undone(run, "grpo", 0, "a"),
        "of_steps": lambda: refused(*columns.read_steps([place], ["text"])),
    }


def refused(found):
    """What one step has in place of its columns."""
    raise found


@pytest.mark.parametrize("use", ["samples", "compact", "set_aside", "of_steps"])
@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
def test_a_segment_is_a_plain_file_name(run, name, use):
    rename(run, name)
    kept = sorted(path for path in run.rglob("*"))
    with pytest.raises(RecordError, match="names a segment that cannot be one"):
        uses(run)[use]()
    assert sorted(path for path in run.rglob("*")) == kept
    assert list(SampleColumns(run).refresh(map(SegmentRef.from_step, RunReader(run).steps())).unreadable) == [
        0
    ]
    assert len(RunReader(run).find_table("grpo", 1).samples) == 2


@pytest.mark.parametrize("use", ["samples", "compact", "set_aside", "of_steps"])
@pytest.mark.parametrize("linked", ["segment", "folder"])
def test_a_link_that_leads_out_is_refused(run, tmp_path, linked, use):
    source = run / "rollouts/grpo-000000.arrow" if linked == "segment" else run / "rollouts"
    outside = tmp_path / "outside"
    source.rename(outside)
    source.symlink_to(outside)
    with pytest.raises(RecordError, match="leads out of the run directory"):
        uses(run)[use]()
    assert outside.exists()
    assert source.is_symlink()


def test_a_link_within_the_run_is_followed(run, tmp_path):
    path = run / "rollouts/grpo-000000.arrow"
    path.rename(run / "elsewhere")
    path.symlink_to("../elsewhere")
    (tmp_path / "run2").symlink_to(run)
    assert len(RunReader(tmp_path / "run2").find_table("grpo", 0).samples) == 2


def test_a_writer_removes_nothing_behind_a_link(run, tmp_path):
    (run / "rollouts").rename(tmp_path / "mine")
    (tmp_path / "mine/letter.txt").write_text("dear")
    (run / "rollouts").symlink_to(tmp_path / "mine")
    with pytest.raises(RecordError, match="leads out of the run directory"):
        RunWriter(run, resume=True)
    assert len(list((tmp_path / "mine").iterdir())) == 4


def forged(run, table):
    """Put a table in place of the first segment, with its own checksum."""
    data = encode_table(table) if table.schema == SCHEMA else _file(table)
    (run / "rollouts/grpo-000000.arrow").write_bytes(data)
    rename(run, "grpo-000000.arrow", sha256(data))


def _file(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_segment_that_its_checksum_fits_and_that_cannot_be_is_an_error(run):
    table = table_of(RunReader(run).find_table("grpo", 0))
    offsets = pa.array([0, 2**30, 3], pa.int32())
    wild = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3], pa.int64()))
    at = SCHEMA.get_field_index("token_ids")
    text, origin, passes = (
        SCHEMA.get_field_index(name) for name in ("sampling_params", "origin", "optimizer_step")
    )
    for other in (
        table.set_column(at, SCHEMA.field(at), [wild]),
        table.set_column(text, SCHEMA.field(text), [pa.array(["{", "{"])]),
        table.select(["text"]),
        table.set_column(
            origin, SCHEMA.field(origin), [pa.array([[0, 9, 4], [0, 4, 4, 4]], pa.list_(pa.uint8()))]
        ),
        table.set_column(passes, SCHEMA.field(passes), [pa.array([[0, 1], [0]])]),
    ):
        forged(run, other)
        with pytest.raises(RecordError):
            RunReader(run).find_table("grpo", 0)
        assert len(RunReader(run).find_table("grpo", 1).samples) == 2


def test_the_name_that_a_writer_makes_is_one_that_is_read(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        write_steps(writer, [0, 1234567], stage="A_b-9")
    assert len(RunReader(tmp_path / "run").find_table("A_b-9", 1234567).samples) == 2
    rows = RunReader(tmp_path / "run").steps()
    assert replace(rows[0]).segment.file == "A_b-9-000000.arrow"
