"""The scalars of all samples are what the rows say, of a run that grows, is set back and is compacted."""

import math
import threading

import pytest
import torch
from recorded import make_sample, make_table, write_steps

import truing.record.column_reader as columns
import truing.record.sample_columns as sample_columns
from truing.record import RunReader, RunWriter, compact
from truing.record.index import SegmentRef
from truing.record.sample_columns import COLUMNS, SampleColumns, SampleSnapshot
from truing.record.segments import encode
from truing.record.store import CompactedFile
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason


def places(run):
    return [SegmentRef.from_step(row) for row in RunReader(run).steps()]


def expected_table(run, unreadable=()):
    """The same table by way of the verified rows."""
    results = []
    for index, step in enumerate(RunReader(run).steps()):
        for s in [] if index in unreadable else RunReader(run).table(step).samples:
            results.append(
                {
                    "step_index": index,
                    "stage": step.stage,
                    "step": step.step,
                    **{name: getattr(s, name) for name in ("sample_id", "rollout_id", "group_id", "task_id")},
                    **{"family": s.family, "status": s.status, "ended_by": s.ended_by},
                    **{"reward": s.reward, "truncated": s.truncated, "prompt_length": s.prompt_length},
                    "turns": len(s.turns),
                    "turn_tokens": sum(turn.end - turn.start for turn in s.turns),
                    "finish_reason": str(s.turns[-1].finish_reason) if s.turns else "",
                }
            )
    return results


def same(known: SampleSnapshot, run):
    assert known.table.schema == COLUMNS
    assert repr(known.table.to_pylist()) == repr(expected_table(run, known.unreadable))
    return True


def row_with_turns(name, *spans, reward=math.nan):
    """A row of six tokens with these turns."""
    turns = tuple(TurnSpan(a, b, reason, 0, "d") for a, b, reason in spans)
    return make_sample(name, 6, reward=reward, turns=turns, truncated=True)


@pytest.fixture
def odd(tmp_path):
    """Steps of no row, of no turn and of many."""
    with RunWriter(tmp_path / "odd") as writer:
        writer.write_step(make_table(0, []))
        rows = [
            row_with_turns("none"),
            row_with_turns("two", (1, 3, FinishReason.TOOL), (4, 6, FinishReason.LENGTH), reward=-0.5),
            row_with_turns("one", (2, 3, FinishReason.STOP), reward=math.inf),
        ]
        writer.write_step(make_table(1, rows))
        write_steps(writer, [2])
        writer.write_step(make_table(3, []))
        write_steps(writer, range(2), stage="ppo")
    return tmp_path / "odd"


@pytest.fixture
def read(monkeypatch):
    """The steps whose rows are read."""
    seen = []

    def noted(run_dir, stretch, *rest):
        seen.extend((place.stage, place.step) for place in stretch.refs)
        return columns.read_columns(run_dir, stretch, *rest)

    monkeypatch.setattr(sample_columns, "read_columns", noted)
    return seen


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("batch", [1, 2**17])
def test_the_table_says_what_the_rows_say(odd, monkeypatch, compacted, batch):
    monkeypatch.setattr(sample_columns, "BATCH_ROWS", batch)
    if compacted:
        compact(odd)
    known = SampleColumns(odd).refresh(places(odd))
    assert same(known, odd)
    assert (known.table.num_rows, known.unread, known.unreadable) == (9, 0, {})
    assert known.table["finish_reason"].to_pylist()[:3] == ["", "length", "stop"]
    assert known.table["turn_tokens"].to_pylist()[:3] == [0, 4, 1]


def test_of_a_run_that_grows_only_what_is_new_is_read(run, read):
    result = SampleColumns(run)
    result.refresh(places(run))
    read.clear()
    with RunWriter(run, resume=True) as writer:
        for step in (3, 4):
            write_steps(writer, [step])
            assert same(result.refresh(places(run)), run)
            assert same(result.refresh(places(run)), run)
    assert read == [("grpo", 3), ("grpo", 4)]
    compact(run)
    assert same(result.refresh(places(run)), run)
    assert len(read) == 2  # the same rows lie elsewhere


def test_a_table_that_grew_often_is_made_whole_and_shares_its_texts(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        result = SampleColumns(tmp_path / "run")
        for step in range(sample_columns.MAX_CHUNKS + 3):
            rows = [make_sample(f"{step}", seed=step)]
            writer.write_step(make_table(step, rows))
            known = result.refresh(places(tmp_path / "run"))
    family = known.table["family"]
    assert family.num_chunks < sample_columns.MAX_CHUNKS
    assert all(chunk.dictionary.to_pylist() == ["sums"] for chunk in family.chunks)
    assert same(known, tmp_path / "run")


def test_rows_of_steps_that_were_undone_go(run, read):
    result = SampleColumns(run)
    compact(run)
    result.refresh(places(run))
    read.clear()
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 1)
        assert result.refresh(places(run)).table.num_rows == 2
        rows = [make_sample("other")]
        writer.write_step(make_table(1, rows))  # of the same name, and not the same
    known = result.refresh(places(run))
    assert known.table["sample_id"].to_pylist() == ["s0", "s1", "other"]
    assert same(known, run)
    assert read == [("grpo", 1)]
    with RunWriter(run, resume=True) as writer:
        writer.clear()
    assert result.refresh(places(run)).table.num_rows == 0


@pytest.mark.parametrize("harm", ["missing", "cut", "other", "nothing"])
def test_a_segment_that_cannot_be_read_is_reported_and_the_others_are_shown(run, harm):
    path = run / "rollouts/grpo-000001.arrow"
    data = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        bare = make_sample("alone")
        other = {"cut": data[: len(data) // 2], "nothing": b"", "other": encode(make_table(1, [bare]))}[harm]
        path.write_bytes(other)
    result = SampleColumns(run)
    for _ in range(2):
        known = result.refresh(places(run))
        assert list(known.unreadable) == [1]
        assert "step 1 of stage grpo" in known.unreadable[1]
        assert same(known, run)
    with RunWriter(run, resume=True) as writer:
        write_steps(writer, [3])
    known = result.refresh(places(run))
    assert (list(known.unreadable), known.table["step"].to_pylist()) == ([1], [0, 0, 2, 2, 3, 3])
    path.write_bytes(data)
    compact(run)
    assert same(result.refresh(places(run)), run)
    assert not result.snapshot.unreadable


def test_a_damaged_row_group_spares_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("truing.record.compaction.ROW_GROUP_BYTES", 1)
    with RunWriter(tmp_path / "run") as writer:
        write_steps(writer, range(4))
    compact(tmp_path / "run")
    path = tmp_path / "run/rollouts.parquet"
    chunk = CompactedFile(path)
    chunk.index()
    meta = chunk._file.metadata.row_group(2)
    names = [meta.column(i).path_in_schema for i in range(meta.num_columns)]
    column = meta.column(names.index("reward"))
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 4] ^= 1
    path.write_bytes(data)
    known = SampleColumns(tmp_path / "run").refresh(places(tmp_path / "run"))
    assert list(known.unreadable) == [2]
    assert same(known, tmp_path / "run")


def test_of_a_file_that_cannot_be_opened_every_step_is_reported(run):
    compact(run)
    result = SampleColumns(run)
    data = (run / "rollouts.parquet").read_bytes()
    (run / "rollouts.parquet").write_bytes(data[:-9])
    assert sorted(result.refresh(places(run)).unreadable) == [0, 1, 2]
    (run / "rollouts.parquet").write_bytes(data)
    assert same(result.refresh(places(run)), run)
    assert not result.snapshot.unreadable


def test_a_run_that_is_compacted_while_it_is_read_is_read_whole(run, monkeypatch):
    steps, done = places(run), []

    def late(run_dir, stretch, *rest):
        if not done:
            done.append(compact(run))
        return columns.read_columns(run_dir, stretch, *rest)

    monkeypatch.setattr(sample_columns, "read_columns", late)
    known = SampleColumns(run).refresh(steps)
    assert not known.unreadable
    assert same(known, run)


def test_without_time_the_rest_is_left_to_the_next_call(run):
    result, left = SampleColumns(run), []
    while not left or left[-1]:
        left.append(result.refresh(places(run), seconds=0).unread)
    assert left == [2, 1, 0]
    assert same(result.snapshot, run)


def test_refreshes_of_several_threads_are_made_one_after_the_other(run):
    compact(run)
    result, known = SampleColumns(run), []
    threads = [threading.Thread(target=lambda: known.append(result.refresh(places(run)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known) == 4
    assert all(same(each, run) for each in known)


@pytest.mark.parametrize("compacted", [False, True])
def test_columns_of_steps_are_those_of_their_rows(run, compacted):
    if compacted:
        compact(run)
    every = places(run)
    wanted = [every[0], every[2], every[1]]
    tables = list(SampleColumns(run).read_steps(wanted, ["text", "reward", "token_ids"]))
    for place, table in zip(wanted, tables, strict=True):
        step = RunReader(run).find_table(place.stage, place.step)
        assert table.column_names == ["text", "reward", "token_ids"]
        assert table["text"].to_pylist() == [sample.text for sample in step.samples]
        ids = [torch.tensor(each) for each in table["token_ids"].to_pylist()]
        assert torch.equal(torch.cat(ids), step.streams["token_ids"])


def test_of_a_step_whose_columns_cannot_be_read_it_is_reported_why(run):
    every = places(run)
    (run / "rollouts" / every[1].file).unlink()
    first, lost, third = list(SampleColumns(run).read_steps(every[:3], ["text"]))
    assert (first.num_rows, third.num_rows) == (every[0].rows, every[2].rows)
    assert "step 1 of stage grpo are missing" in str(lost)


def test_columns_of_steps_of_a_row_group_are_read_once(run, read):
    compact(run)
    every = places(run)
    result = list(SampleColumns(run).read_steps([every[0], every[2]], ["text"]))
    assert [table.num_rows for table in result] == [every[0].rows, every[2].rows]
    assert len(read) == 1


@pytest.mark.parametrize("said", ["no sum", ["a"], None, 5])
def test_a_line_that_says_anything_for_a_sum_has_no_rows(run, said):
    compact(run)
    steps = places(run)
    steps[1] = steps[1]._replace(sha256=said)
    steps[2] = steps[2]._replace(rows=9)
    known = SampleColumns(run).refresh(steps)
    assert (list(known.unreadable), known.table.num_rows) == ([1, 2], 2)
