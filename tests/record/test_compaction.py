"""Compacted rows are the rows, to the bit, and a failure at any point loses none."""

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from pyarrow.parquet import ParquetFile
from recorded import make_passes, make_sample, make_table, same_table, support_of, write_steps

import truing.record.compaction as compaction
import truing.record.store as store
from truing.errors import RecordError
from truing.record import RunReader, RunWriter, compact
from truing.record.index import METADATA_KEY
from truing.record.schema import SCHEMA
from truing.record.segments import table_of
from truing.types.sampling_params import SamplingParams

STRIDE = 211  # between the bytes that are flipped; prime, so that no column is passed over


def read_all(run):
    reader = RunReader(run)
    return {(s.stage, s.step): reader.find_table(s.stage, s.step) for s in reader.steps()}


def same(a, b):
    return list(a) == list(b) and all(same_table(a[k], b[k]) for k in a)


def segments(run):
    return sorted(path.name for path in (run / "rollouts").iterdir())


def test_compaction_changes_nothing_that_a_reader_sees(run):
    before = read_all(run)
    assert compact(run) == 3
    assert segments(run) == []
    assert same(read_all(run), before)


def test_every_bit_of_a_nan_survives(tmp_path):
    odd = make_sample("a", 4, sampling_params=SamplingParams(top_k=2), support=support_of(0, 2, 0, 1))
    bits = torch.tensor(
        [0x7FC00000, -0x400000, -(2**31), 0x7F800001], dtype=torch.int32
    )  # NaN, -NaN, -0.0, sNaN
    table = make_table(0, [odd], passes=make_passes([odd], entropy=bits.view(torch.float32)))
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(table)
        for step in (1, 2):  # two equal segments
            writer.write_step(make_table(step, []))
        write_steps(writer, [3])
    compact(tmp_path / "run")
    read = RunReader(tmp_path / "run").find_table("grpo", 0)
    assert torch.equal(read.tokens["entropy"].view(torch.int32), bits)
    assert same_table(read, table)
    assert RunReader(tmp_path / "run").find_table("grpo", 2).samples == []
    assert len(RunReader(tmp_path / "run").find_table("grpo", 3).samples) == 2


def test_compacting_again_adds_what_came_since_and_drops_what_was_forgotten(run):
    compact(run)
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 2)
        rows = [make_sample("other")]
        writer.write_step(make_table(2, rows))
        write_steps(writer, [3])
    before = read_all(run)
    assert segments(run) == ["grpo-000002.arrow", "grpo-000003.arrow"]
    assert before["grpo", 2].samples[0].sample_id == "other"
    assert compact(run) == 4
    assert segments(run) == []
    assert same(read_all(run), before)


def test_a_crash_before_the_segments_are_removed_loses_nothing(run, monkeypatch):
    before = read_all(run)

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            compact(run)
    assert len(segments(run)) == 3
    assert (run / "rollouts.parquet").exists()
    assert same(read_all(run), before)
    compact(run)
    assert same(read_all(run), before)


def test_a_full_disk_leaves_the_segments(run, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = read_all(run)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left"):
        compact(run)
    assert len(segments(run)) == 3
    assert not list(run.glob("rollouts.parquet*"))
    assert same(read_all(run), before)


def test_segments_stay_where_the_new_file_reads_otherwise(run, monkeypatch):
    monkeypatch.setattr(compaction, "content_digests", lambda table, rows: ["ab" * 32] * len(rows))
    with pytest.raises(RecordError, match="rows of another digest"):
        compact(run)
    assert len(segments(run)) == 3
    assert not list(run.glob("rollouts.parquet*"))


def test_a_damaged_segment_stops_compaction_and_is_named(run):
    path = run / "rollouts/grpo-000001.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match=r"grpo-000001\.arrow is damaged"):
        compact(run)
    assert len(segments(run)) == 3


def test_a_flipped_bit_of_the_parquet_file_is_found_or_harmless(run):
    before = read_all(run)
    compact(run)
    path = run / "rollouts.parquet"
    data = bytearray(path.read_bytes())
    found = 0
    for at in range(0, len(data), STRIDE):
        data[at] ^= 0x10
        path.write_bytes(data)
        try:
            assert same(read_all(run), before), at
        except RecordError:
            found += 1
        data[at] ^= 0x10
    assert found


def test_a_cut_parquet_file_is_named(run):
    compact(run)
    path = run / "rollouts.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RecordError, match=r"grpo-000000\.arrow cannot be read from .*rollouts\.parquet"):
        RunReader(run).find_table("grpo", 0)


def test_the_file_is_opened_once_however_many_steps_it_has(run, monkeypatch):
    """Its footer grows with the steps, so that opening it for each would take longer with each."""
    opened = []

    def count(*args, **kwargs):
        opened.append(args)
        return ParquetFile(*args, **kwargs)

    monkeypatch.setattr(store.pq, "ParquetFile", count)
    compact(run)
    assert len(opened) == 1


def groups_of(run):
    """The steps of each row group, as the index says, and how many rows each group has."""
    groups = store.CompactedFile(run / "rollouts.parquet")
    table, found = groups.index().table, {}
    for group, step in zip(table["group"].to_pylist(), table["step"].to_pylist(), strict=True):
        found.setdefault(group, []).append(step)
    meta = ParquetFile(run / "rollouts.parquet").metadata
    return list(found.values()), [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]


def test_steps_share_a_row_group_until_it_is_full_and_none_is_split(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "run") as writer:
        write_steps(writer, range(7))
        writer.write_step(make_table(7, []))
    before = read_all(tmp_path / "run")
    size = table_of(before["grpo", 0]).nbytes
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", 2.5 * size)
    compact(tmp_path / "run")
    assert groups_of(tmp_path / "run") == ([[0, 1, 2], [3, 4, 5], [6, 7]], [6, 6, 2])
    assert same(read_all(tmp_path / "run"), before)
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", 1)
    compact(tmp_path / "run")
    assert groups_of(tmp_path / "run") == ([[i] for i in range(8)], [2] * 7 + [0])
    assert same(read_all(tmp_path / "run"), before)


def test_steps_read_in_order_read_each_row_group_once(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "run") as writer:
        write_steps(writer, range(6))
    size = table_of(RunReader(tmp_path / "run").find_table("grpo", 0)).nbytes
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", 2.5 * size)
    compact(tmp_path / "run")
    read = []

    class Counted(ParquetFile):
        def read_row_group(self, i, *args, **kwargs):
            read.append(i)
            return super().read_row_group(i, *args, **kwargs)

    monkeypatch.setattr(store.pq, "ParquetFile", Counted)
    read_all(tmp_path / "run")
    assert read == [0, 1]


def test_a_reader_sees_the_file_that_took_the_place_of_another(run):
    reader = RunReader(run)
    compact(run)
    assert len(reader.find_table("grpo", 2).samples) == 2
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 2)
        rows = [make_sample("other")]
        writer.write_step(make_table(2, rows))
    compact(run)
    assert [sample.sample_id for sample in reader.find_table("grpo", 2).samples] == ["other"]


def test_a_damaged_group_names_the_step_and_spares_the_other_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", 1)
    with RunWriter(tmp_path / "run") as writer:
        write_steps(writer, range(3))
    compact(tmp_path / "run")
    path = tmp_path / "run/rollouts.parquet"
    chunk = ParquetFile(path).metadata.row_group(1).column(5)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
    reader = RunReader(tmp_path / "run")
    with pytest.raises(RecordError, match=r"grpo-000001\.arrow cannot be read from .*rollouts\.parquet"):
        reader.find_table("grpo", 1)
    assert len(reader.find_table("grpo", 0).samples) == len(reader.find_table("grpo", 2).samples) == 2


@pytest.mark.parametrize("value", [None, b"[]", b"bm8gc3RyZWFt"])
def test_a_file_of_another_form_is_said_to_be_one(run, value):
    table = table_of(RunReader(run).find_table("grpo", 0))
    (run / "rollouts/grpo-000000.arrow").unlink()
    with pq.ParquetWriter(run / "rollouts.parquet", SCHEMA) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: value} if value else {"truing.digests": "[]"})
    for ask in (
        lambda: RunReader(run).find_table("grpo", 0),
        lambda: compact(run),
        RunReader(run).check_complete,
    ):
        with pytest.raises(RecordError, match="does not say where the rows of each step are"):
            ask()
    assert segments(run) == ["grpo-000001.arrow", "grpo-000002.arrow"]


def test_lines_that_were_lost_are_reported_of_a_run_in_few_groups(run):
    compact(run)
    path = run / "steps.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(RecordError, match="2 steps have no line"):
        RunReader(run).check_complete()


def test_a_line_that_counts_other_rows_is_found(run):
    path = run / "steps.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"rows": 2', b'"rows": 3', 1))
    with pytest.raises(RecordError, match="not of one step"):
        RunReader(run).find_table("grpo", 0)
    with pytest.raises(RecordError, match="not of one step"):
        compact(run)
    assert len(segments(run)) == 3
