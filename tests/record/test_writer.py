"""What a run directory refuses, and how it is resumed."""

import pytest
from recorded import make_table, same_table, write_steps

from truing.errors import RecordError
from truing.record import RunReader, RunWriter, archive_undone, compact


def recorded(run):
    return [(row.stage, row.step) for row in RunReader(run).steps()]


def test_a_directory_that_holds_something_is_refused(run):
    with pytest.raises(RecordError, match=r"(?s)not empty.*--resume.*--out"):
        RunWriter(run)


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RecordError, match="new or empty directory"):
        RunWriter(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_directory_is_taken(tmp_path):
    RunWriter(tmp_path).close()
    assert recorded(tmp_path) == []


def test_only_a_run_can_be_resumed(tmp_path):
    with pytest.raises(RecordError, match="no run to resume"):
        RunWriter(tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing").exists()


def test_two_writers_of_one_run_are_refused(run):
    with RunWriter(run, resume=True), pytest.raises(RecordError, match="another process"):
        RunWriter(run, resume=True)
    RunWriter(run, resume=True).close()


def test_facts_and_recipe_are_written_once(run):
    with RunWriter(run, resume=True) as writer:
        with pytest.raises(RecordError, match=r"run\.json was written already"):
            writer.write_run({"run_id": "other"})
        with pytest.raises(RecordError, match=r"recipe\.toml was written already"):
            writer.write_recipe("seed = 2\n")
    assert RunReader(run).run_json()["run_id"] == "r"


def test_resume_goes_on_after_a_step(run):
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 1)
        assert recorded(run) == [("grpo", 0)]
        assert [path.name for path in (run / "rollouts").iterdir()] == ["grpo-000000.arrow"]
        write_steps(writer, [1], stage="other")
    assert recorded(run) == [("grpo", 0), ("other", 1)]
    assert len(RunReader(run).find_table("other", 1).samples) == 2


def test_back_to_before_a_stage_keeps_the_stages_before_it(run):
    with RunWriter(run, resume=True) as writer:
        write_steps(writer, [0, 1], stage="other")
        writer.truncate_to("other", 0)
        assert recorded(run) == [("grpo", 0), ("grpo", 1), ("grpo", 2)]
        writer.truncate_to("other", 0)  # nothing of it is recorded
    assert len(recorded(run)) == 3


def test_what_is_set_aside_is_a_run_to_read(run):
    before = RunReader(run).find_table("grpo", 2)
    folder = archive_undone(run, "grpo", 1, "grpo-1")
    with RunWriter(run, resume=True) as writer:
        writer.truncate_to("grpo", 1)
    assert (recorded(run), recorded(folder)) == ([("grpo", 0)], [("grpo", 1), ("grpo", 2)])
    kept = RunReader(folder).find_table("grpo", 2)
    assert same_table(kept, before)
    assert RunReader(folder).recipe() == RunReader(run).recipe()
    assert archive_undone(run, "grpo", 0, "grpo-1") == folder  # that of a crash is replaced
    assert recorded(folder) == [("grpo", 0)]


def test_what_was_compacted_is_set_aside_too(run):
    compact(run)
    with RunWriter(run, resume=True) as writer:
        write_steps(writer, [3])
    before = [RunReader(run).find_table("grpo", step) for step in (2, 3)]
    folder = archive_undone(run, "grpo", 2, "grpo-2")
    kept = [RunReader(folder).find_table("grpo", step) for step in (2, 3)]
    assert all(same_table(a, b) for a, b in zip(kept, before, strict=True))
    RunReader(folder).check_complete()
    assert compact(folder) == 2


def test_restart_forgets_every_step_and_keeps_the_events(run):
    with RunWriter(run, resume=True) as writer:
        writer.clear()
        write_steps(writer, [0])
    assert recorded(run) == [("grpo", 0)]
    assert [event.kind for event in RunReader(run).events()] == ["started", "numbers", "finished"]


def test_resume_after_a_step_that_is_not_there_is_refused(run):
    with RunWriter(run, resume=True) as writer, pytest.raises(RecordError, match="no step 9 of stage grpo"):
        writer.truncate_to("grpo", 10)
    assert len(recorded(run)) == 3


def test_a_step_is_recorded_once(run):
    with (
        RunWriter(run, resume=True) as writer,
        pytest.raises(RecordError, match="step 2 of stage grpo is recorded"),
    ):
        write_steps(writer, [2])


@pytest.mark.parametrize("stage", ["../x", "a/b", "", "x\n", ".."])
def test_a_stage_cannot_leave_the_run(tmp_path, stage):
    with RunWriter(tmp_path / "run") as writer, pytest.raises(RecordError, match="cannot name a file"):
        writer.write_step(make_table(0, [], stage))
    assert not list(tmp_path.glob("*.arrow"))


def test_a_reader_of_what_is_no_run_says_so(tmp_path):
    with pytest.raises(RecordError, match="not a run directory"):
        RunReader(tmp_path / "nothing")
    with pytest.raises(RecordError, match=r"cannot read .*run\.json"):
        RunReader(tmp_path).run_json()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        RunReader(tmp_path).run_json()


def test_a_step_that_is_not_recorded_is_named(run):
    with pytest.raises(RecordError, match=r"no step 7 of stage sft(?s:.*)up to grpo 2"):
        RunReader(run).find_table("sft", 7)


def test_a_growing_run_can_be_read(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        reader = RunReader(tmp_path / "run")
        assert reader.steps() == []
        write_steps(writer, [0])
        assert [row.step for row in reader.steps()] == [0]
        assert len(reader.find_table("grpo", 0).samples) == 2


def test_a_run_of_another_format_is_refused(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"format": 1})
    with pytest.raises(RecordError, match=r"run of another format\n\s+got: 1\n\s+expected: 2"):
        RunReader(tmp_path / "run").run_json()
