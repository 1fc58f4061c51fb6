"""A crash at any byte, a full disk and a flipped bit lose at most the last record, and never invent one."""

import errno
import json
import os
import resource
import shutil
from contextlib import contextmanager

import pytest
from recorded import NAN, make_sample, make_table, same_table, write_steps

from truing.errors import RecordError
from truing.record import RunReader, RunWriter


def read_all(run):
    reader = RunReader(run)
    return {(s.stage, s.step): reader.find_table(s.stage, s.step) for s in reader.steps()}


def test_steps_cut_at_every_byte_lose_at_most_the_last(run):
    path = run / "steps.jsonl"
    data = path.read_bytes()
    start_of_last = data[:-1].rindex(b"\n") + 1
    for cut in range(start_of_last, len(data) + 1):
        path.write_bytes(data[:cut])
        assert list(read_all(run)) == [("grpo", step) for step in range(3 if cut == len(data) else 2)]


@pytest.mark.integration
def test_a_run_cut_at_any_byte_of_its_lines_can_be_resumed(run, tmp_path):
    data = (run / "steps.jsonl").read_bytes()
    for cut in [*range(0, len(data), 97), len(data) - 1]:
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(run, copy)
        (copy / "steps.jsonl").write_bytes(data[:cut])
        whole = data[:cut].count(b"\n")
        with RunWriter(copy, resume=True) as writer:
            write_steps(writer, range(whole, 3))
        again, before = read_all(copy), read_all(run)
        assert list(again) == list(before)
        assert all(same_table(again[key], before[key]) for key in before)


def test_a_segment_cut_at_any_byte_is_named_and_spares_the_others(run):
    path = run / "rollouts/grpo-000002.arrow"
    data = path.read_bytes()
    for cut in range(0, len(data), 53):
        path.write_bytes(data[:cut])
        with pytest.raises(RecordError, match=r"grpo-000002\.arrow is damaged"):
            RunReader(run).find_table("grpo", 2)
        assert len(RunReader(run).find_table("grpo", 1).samples) == 2


def test_a_flipped_bit_in_a_segment_is_found(run):
    path = run / "rollouts/grpo-000001.arrow"
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 101):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(RecordError, match="is damaged"):
            RunReader(run).find_table("grpo", 1)
        data[at] ^= 1


def test_a_segment_whose_line_never_came_was_not_recorded(run):
    (run / "rollouts/grpo-000003.arrow").write_bytes(b"half")
    (run / "rollouts/grpo-000004.arrow.tmp").write_bytes(b"half")
    assert list(read_all(run)) == [("grpo", step) for step in range(3)]
    RunWriter(run, resume=True).close()
    assert sorted(p.name for p in (run / "rollouts").iterdir()) == [f"grpo-00000{i}.arrow" for i in range(3)]


def test_a_damaged_line_in_the_middle_is_named(run):
    path = run / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{gar\r\n" + lines[2])
    with pytest.raises(RecordError, match=r"line 2 of .*steps\.jsonl is damaged"):
        RunReader(run).steps()
    path.write_bytes(lines[0] + b'{"step": 1}\n')
    with pytest.raises(RecordError, match=r"line [12] of .* is damaged"):
        RunReader(run).steps()


def test_a_missing_segment_is_named(run):
    (run / "rollouts/grpo-000000.arrow").unlink()
    with pytest.raises(RecordError, match=r"grpo-000000\.arrow of step 0 is missing"):
        RunReader(run).find_table("grpo", 0)


@contextmanager
def files_no_longer_than(size):
    """Let the system refuse to write beyond ``size`` bytes of a file, after a partial write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_refused_at_any_byte_loses_nothing(run):
    rows = [make_sample("s0", 3)]
    with RunWriter(run, resume=True) as writer:
        long_line = make_table(3, rows, **{f"reward_part/part{i}": 0.1 for i in range(1000)})
        writer.write_step(long_line)  # so that a segment fits where the next line does not
        whole = (run / "steps.jsonl").read_bytes()
        for room in range(0, 200, 23):
            with (
                files_no_longer_than(len(whole) + room),
                pytest.raises(RecordError, match=r"cannot write .*steps"),
            ):
                writer.write_step(make_table(4, rows))
            assert len(RunReader(run).steps()) == 4
        writer.write_step(make_table(4, rows))
    assert list(read_all(run)) == [("grpo", step) for step in range(5)]
    assert (run / "steps.jsonl").read_bytes().startswith(whole)


def test_a_segment_refused_at_any_byte_loses_nothing(run):
    rows = [make_sample("s0", 3)]
    with RunWriter(run, resume=True) as writer:
        for limit in range(3000, 11_000, 1000):
            with files_no_longer_than(limit), pytest.raises(RecordError, match=r"cannot write .*arrow"):
                writer.write_step(make_table(3, rows))
        writer.write_step(make_table(3, rows))
    assert list(read_all(run)) == [("grpo", step) for step in range(4)]
    assert not list(run.rglob("*.tmp"))


def test_a_disk_that_becomes_read_only_is_named(run, monkeypatch):
    """Nor can the unfinished file be removed then; that error must not replace the first."""

    def refused(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    rows = [make_sample()]
    with RunWriter(run, resume=True) as writer:
        monkeypatch.setattr(os, "fsync", refused)
        monkeypatch.setattr(os, "unlink", refused)
        with pytest.raises(RecordError, match=r"(?s)cannot write .*arrow.*Read-only file system"):
            writer.write_step(make_table(3, rows))


def test_a_full_disk_is_said_and_nothing_recorded_is_lost(run, monkeypatch):
    before = {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rows = [make_sample()]
    with RunWriter(run, resume=True) as writer:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"(?s)cannot write .*No space left on device.*--resume"):
            writer.write_step(make_table(3, rows))
        with pytest.raises(RecordError, match="No space left on device"):
            writer.write_event("note", value=NAN)
        monkeypatch.undo()
    RunWriter(run, resume=True).close()
    kept = {
        path.name: path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != "events.jsonl"
    }
    assert kept == {name: data for name, data in before.items() if name != "events.jsonl"}
    assert len(RunReader(run).steps()) == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", "0"), ("step", 2**70), ("stage", 5), ("loss_label", 0.5), ("facts", [1]), ("metrics", 5)],
)
def test_a_line_with_a_value_of_another_type_is_one_error(run, key, value):
    lines = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    lines[0] = json.dumps(json.loads(lines[0]) | {key: value}) + "\n"
    (run / "steps.jsonl").write_text("".join(lines))
    with pytest.raises(RecordError, match=r"line [12] of .* is damaged"):
        RunReader(run).check_complete()
