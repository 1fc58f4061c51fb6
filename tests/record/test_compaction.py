"""Compacted rows are the rows, to the bit, and a failure at any point loses none."""

import errno
import os
from pathlib import Path

import pytest
import torch
from pyarrow.parquet import ParquetFile
from recorded import make_record, make_row, same_row, support_of, write_steps

import truing.record.compaction as compaction
import truing.record.store as store
from truing.contract import SamplingContract
from truing.errors import RecordError
from truing.record import RunReader, RunWriter, SampleRow, compact

STRIDE = 211  # between the bytes that are flipped; prime, so that no column is passed over


def read_all(run):
    reader = RunReader(run)
    return {(s.stage, s.step): reader.samples(s.stage, s.step) for s in reader.steps()}


def same(a, b):
    return list(a) == list(b) and all(
        len(a[k]) == len(b[k]) and all(same_row(x, y) for x, y in zip(a[k], b[k], strict=True)) for k in a
    )


def segments(run):
    return sorted(path.name for path in (run / "rollouts").iterdir())


def test_compaction_changes_nothing_that_a_reader_sees(run):
    before = read_all(run)
    assert compact(run) == 3
    assert segments(run) == []
    assert same(read_all(run), before)


def test_every_bit_of_a_nan_survives(tmp_path):
    odd = make_row("a", 4, contract=SamplingContract(top_k=2), support=support_of(0, 2, 0, 1))
    bits = torch.tensor(
        [0x7FC00000, -0x400000, -(2**31), 0x7F800001], dtype=torch.int32
    )  # NaN, -NaN, -0.0, sNaN
    odd = SampleRow(**vars(odd) | {"entropy": bits.view(torch.float32)})
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(make_record(0, [odd]), [odd])
        for step in (1, 2):  # two equal segments
            writer.write_step(make_record(step, []), [])
        write_steps(writer, [3])
    compact(tmp_path / "run")
    (read,) = RunReader(tmp_path / "run").samples("grpo", 0)
    assert torch.equal(read.entropy.view(torch.int32), bits)
    assert same_row(read, odd)
    assert RunReader(tmp_path / "run").samples("grpo", 2) == ()
    assert len(RunReader(tmp_path / "run").samples("grpo", 3)) == 2


def test_compacting_again_adds_what_came_since_and_drops_what_was_forgotten(run):
    compact(run)
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 2)
        rows = [make_row("other")]
        writer.write_step(make_record(2, rows), rows)
        write_steps(writer, [3])
    before = read_all(run)
    assert segments(run) == ["grpo-000002.arrow", "grpo-000003.arrow"]
    assert before["grpo", 2][0].sample.sample_id == "other"
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
        RunReader(run).samples("grpo", 0)


def test_the_file_is_opened_once_however_many_steps_it_has(run, monkeypatch):
    """Its footer grows with the steps, so that opening it for each would take longer with each."""
    opened = []

    def count(*args, **kwargs):
        opened.append(args)
        return ParquetFile(*args, **kwargs)

    monkeypatch.setattr(store.pq, "ParquetFile", count)
    compact(run)
    assert len(opened) == 1
