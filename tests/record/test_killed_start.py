"""A run that was killed before its record began is started by --resume; anything else stays as it is."""

import pytest

import truing
from truing.errors import RecordError
from truing.record import RunReader, RunWriter
from truing.record.killed_start import remove_killed_start


@pytest.fixture
def killed(tmp_path):
    """The directory of a run that was killed while it wrote its recipe."""
    run = tmp_path / "run"
    RunWriter(run).close()
    (run / "tokenizer").mkdir()
    (run / "recipe.toml.tmp").write_bytes(b"name")
    return run


def test_what_a_killed_start_left_is_removed(killed):
    assert remove_killed_start(killed)
    assert not killed.exists()


@pytest.mark.parametrize("name", ["run.json", "thesis.tex"])
def test_a_directory_with_anything_else_stays(killed, name):
    (killed / name).write_text("{}")
    assert not remove_killed_start(killed)
    assert (killed / name).read_text() == "{}"


@pytest.mark.parametrize("name", ["events.jsonl", "rollouts/grpo-000000.arrow"])
def test_a_directory_with_a_record_stays(killed, name):
    (killed / name).write_bytes(b"{}\n")
    assert not remove_killed_start(killed)


def test_folders_of_no_run_stay(tmp_path):
    assert not remove_killed_start(tmp_path)
    assert not remove_killed_start(tmp_path / "absent")


def test_a_run_that_is_starting_is_not_removed(killed):
    with (
        RunWriter(killed.with_name("other")),
        pytest.raises(RecordError, match="another process is starting"),
    ):
        remove_killed_start(killed.with_name("other"))


@pytest.mark.integration
def test_it_is_resumed_by_starting_it(killed, mini):
    result = truing.train(mini(stages=["sft"]), out=killed, resume=True, on_event=lambda kind, facts: None)
    assert len(RunReader(result.run).steps()) == 3
