"""The ledger: what is written comes back, whatever else happened to the files."""

import errno
import json
import math
import os
from dataclasses import fields, replace

import pytest

from truing.errors import LabError, RecordError
from truing.lab.store import ledger as module
from truing.lab.store.ledger import (
    KINDS,
    CheckResult,
    Declaration,
    History,
    Ledger,
    Run,
    read_ledger,
)

RUN = Run("k-s0", "arm", "code", "machine", "h01", "changed", 0, "finished")


def same(one, other):
    """Equality by which NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


ENTRIES = {
    "run": replace(
        RUN,
        error="it said “no”\nin two lines",
        metrics={"eval/reward": 0.1 + 0.2, "nan": math.nan, "up": math.inf, "down": -math.inf},
        tasks={"a": 1.0, "b": math.nan},
        curve=[0.0, math.nan, math.inf, -math.inf, 1e-300],
        seconds=None,
        peak_bytes=2**40,
        machine="höst",
    ),
    "begun": Declaration(
        "h01", "T", {"claim": "c", "arms": {"a": ["x=1"]}}, ["kl.coef=0"], {"a": "1"}, 0.025, True
    ),
    "checked": CheckResult(
        "h01", "r", "c", {"LEN001": ["PROVEN", "x"]}, {"a": math.nan, "b": -math.inf}, 1.5
    ),
}


def wrote(folder, *entries):
    ledger = Ledger(folder)
    results = [ledger.write(entry) for entry in entries]
    ledger.close()
    return results


def lines_of(folder):
    return [line for path in sorted(folder.glob("*")) for line in path.read_text().splitlines()]


def test_there_is_an_entry_of_each_kind():
    assert ENTRIES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", ENTRIES)
def test_what_is_written_comes_back(tmp_path, kind):
    """NaN as NaN and infinity as infinity, in JSON that anybody reads."""
    (told,) = wrote(tmp_path, ENTRIES[kind])
    (found,) = read_ledger(tmp_path).entries
    for item in fields(told):
        one, other = getattr(told, item.name), getattr(found, item.name)
        assert same(one, other), item.name
        assert same(getattr(ENTRIES[kind], item.name), other) or item.name == "time"
    assert found.time > 0
    line = json.loads(lines_of(tmp_path)[0], parse_constant=pytest.fail)
    assert line["kind"] == kind


def test_nothing_is_written_where_nothing_happened(tmp_path):
    folder = tmp_path / "ledger"
    Ledger(folder).close()
    assert not folder.exists()
    assert read_ledger(folder).entries == []


def test_each_command_has_a_file_of_its_own(tmp_path):
    wrote(tmp_path, RUN, replace(RUN, seed=1))
    wrote(tmp_path, replace(RUN, seed=2))
    assert sorted(len(path.read_text().splitlines()) for path in tmp_path.iterdir()) == [1, 2]


def test_files_are_read_by_time(tmp_path, monkeypatch):
    """Two people at once: their lines lie between each other's."""
    now = iter([10.0, 40.0, 20.0, 30.0])
    monkeypatch.setattr(module.time, "time", lambda: next(now))
    wrote(tmp_path, replace(RUN, seed=1), replace(RUN, seed=4))
    wrote(tmp_path, replace(RUN, seed=2), replace(RUN, seed=3))
    assert [entry.seed for entry in read_ledger(tmp_path).entries] == [1, 2, 3, 4]
    assert [entry.time for entry in read_ledger(tmp_path).entries] == [10, 20, 30, 40]


def test_a_torn_last_line_was_never_written(tmp_path):
    wrote(tmp_path, RUN, replace(RUN, seed=1))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    assert [entry.seed for entry in read_ledger(tmp_path).entries] == [0]


def test_a_damaged_line_is_named(tmp_path):
    wrote(tmp_path, RUN, replace(RUN, seed=1))
    (path,) = tmp_path.iterdir()
    first, second = path.read_text().splitlines()
    path.write_text(f"{first[:-9]}\n{second}\n")
    with pytest.raises(RecordError, match=r"line 1 of .* is damaged") as caught:
        read_ledger(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("line", ['{"kind": "dreamt"}', "{}"])
def test_a_line_of_an_unknown_kind(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabError, match="unknown kind") as caught:
        read_ledger(tmp_path)
    assert str(path) in caught.value.what
    assert "update" in caught.value.remedy


@pytest.mark.parametrize("line", ["[1, 2]", "3", '"run"', '{"kind": "run", "key": "k"}'])
def test_a_line_that_says_too_little(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabError) as caught:
        read_ledger(tmp_path)
    assert str(path) in caught.value.what


def test_what_a_newer_truing_adds_to_a_line_is_passed_over(tmp_path):
    wrote(tmp_path, RUN)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": "red"}) + "\n")
    assert read_ledger(tmp_path).entries[0].key == RUN.key


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    """Half a line gets through, then nothing; the next command, and this one, go on behind what was whole."""
    ledger = Ledger(tmp_path)
    ledger.write(RUN)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(handle, data):
        os.write(handle.fileno(), data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("truing.utils.jsonl.write_all", full)
    with pytest.raises(RecordError, match="No space left on device") as caught:
        ledger.write(replace(RUN, seed=1))
    assert str(path) in str(caught.value)
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes()) > len(before)
    assert [entry.seed for entry in read_ledger(tmp_path).entries] == [0]
    monkeypatch.undo()
    ledger.write(replace(RUN, seed=2))
    ledger.close()
    assert [entry.seed for entry in read_ledger(tmp_path).entries] == [0, 2]
    assert path.read_bytes().count(b"\n") == 2


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        Ledger(tmp_path / "file" / "ledger").write(RUN)


# What history says.


def history(*runs):
    return History(tuple(runs))


def outcome(name, **facts):
    return replace(RUN, outcome=name, **facts)


def test_the_first_that_finished_counts():
    """Whatever crashed before; and nobody re-rolls a run that finished."""
    first, second = (outcome("finished", metrics={"x": x}) for x in (1.0, 2.0))
    assert history(outcome("crashed"), first, second).runs() == {RUN.key: first}
    assert history(first, outcome("crashed"), second).runs() == {RUN.key: first}


def test_else_the_last_that_was_tried():
    tried = [outcome("crashed", error=str(i)) for i in range(3)]
    assert history(*tried).runs()[RUN.key].error == "2"


def test_a_fault_that_was_proven_can_be_tried_again():
    """As `--retry` does: what finished then counts, and until then the last try."""
    proven, done = outcome("proven", error="LEN001"), outcome("finished")
    assert history(proven, done).runs()[RUN.key] == done
    assert history(proven, outcome("crashed", error="x")).runs()[RUN.key].error == "x"


def test_entries_of_a_kind_and_of_a_hypothesis():
    begun = ENTRIES["begun"]
    result = history(RUN, begun, replace(RUN, hypothesis="h02")).with_entry(replace(begun, hypothesis="h02"))
    assert result.entries_of(Declaration) == [begun, replace(begun, hypothesis="h02")]
    assert result.entries_of(Run, "h02") == [replace(RUN, hypothesis="h02")]
    assert result.entries_of(CheckResult) == []


def test_the_most_memory():
    assert history().peak_bytes() == 0
    assert history(replace(RUN, peak_bytes=5), outcome("crashed", peak_bytes=9)).peak_bytes() == 9


def test_one_more_entry_leaves_the_history_as_it_was():
    before = history(RUN)
    assert len(before.with_entry(RUN).entries) == 2
    assert len(before.entries) == 1
