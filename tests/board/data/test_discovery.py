"""What is found under a folder, under which name, and what is not followed."""

import os
import shutil

import pytest
from labs import lab_in
from shown import opened_run, write

from truing.board.data.discovery import FolderIndex
from truing.board.queries import Board
from truing.errors import RecordError


def run_in(folder):
    with opened_run(folder) as writer:
        write(writer, 0)
        writer.write_event("finished")
    return folder


def test_runs_labs_and_traces_are_named_by_their_path(tmp_path):
    run_in(tmp_path / "a")
    run_in(tmp_path / "deep/er/b")
    lab_in(tmp_path / "my-lab")
    (tmp_path / "traces/one").mkdir(parents=True)
    (tmp_path / "traces/one/trace.json").write_text("{}")
    index = FolderIndex(tmp_path)
    assert index.runs == {
        "a": tmp_path / "a",
        "deep/er/b": tmp_path / "deep/er/b",
        "traces/one": tmp_path / "traces/one",
    }
    assert (list(index.labs), index.notes) == (["my-lab"], [])


def test_a_folder_without_anything_has_nothing(tmp_path):
    answer = Board(tmp_path).answer("runs", {})
    assert answer == {
        "root": str(tmp_path.resolve()),
        **{"runs": [], "waiting": 0, "labs": [], "notes": []},
    }


def test_what_is_no_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    for each in ("file", "nothing"):
        with pytest.raises(RecordError, match="is not a folder"):
            FolderIndex(tmp_path / each)


def test_a_run_may_be_given_itself_and_is_then_called_by_its_name(tmp_path):
    run = run_in(tmp_path / "mine")
    shutil.copytree(run, run / "abandoned/grpo-1")
    assert list(FolderIndex(run).runs) == ["mine", "abandoned/grpo-1"]
    assert Board(run).answer("run", {"run": "mine"})["steps"] == 1


def test_a_run_within_one_of_its_own_name_hides_neither(tmp_path):
    run = run_in(tmp_path / "same")
    run_in(run / "same")
    result = FolderIndex(run).runs
    assert result == {"same": run, "./same": run / "same"}


def test_a_run_may_lie_in_a_folder_that_is_called_like_a_part_of_a_run(tmp_path):
    for name in ("rollouts/x", "checkpoints/y", "tokenizer/z"):
        run_in(tmp_path / name)
    assert sorted(FolderIndex(tmp_path).runs) == ["checkpoints/y", "rollouts/x", "tokenizer/z"]
    run_in(tmp_path / "checkpoints/y/rollouts/inner")
    assert "checkpoints/y/rollouts/inner" not in FolderIndex(tmp_path).runs


def test_hidden_folders_are_not_looked_into(tmp_path):
    run_in(tmp_path / ".trash/a")
    run_in(tmp_path / "b" / ".grpo-1.tmp")
    run_in(tmp_path / "node_modules/c")
    assert FolderIndex(tmp_path).runs == {}


def test_links_are_not_followed_and_reported(tmp_path):
    run_in(tmp_path / "outside/run")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/linked").symlink_to(tmp_path / "outside")
    index = FolderIndex(tmp_path / "root")
    assert index.runs == {}
    assert index.notes == [f"{tmp_path / 'root/linked'} is a link and was not followed"]
    assert Board(tmp_path / "root").answer("runs", {})["notes"] == index.notes


@pytest.mark.parametrize("file", ["run.json", "recipe.toml", "steps.jsonl", "events.jsonl", "rollouts"])
def test_a_run_with_a_link_that_leads_out_is_not_shown(tmp_path, file):
    run = run_in(tmp_path / "root/run")
    (run / file).rename(tmp_path / "secret")
    (run / file).symlink_to(tmp_path / "secret")
    index = FolderIndex(tmp_path / "root")
    assert index.runs == {}
    assert "contains links that lead out" in index.notes[-1]
    with pytest.raises(RecordError, match="there is no run"):
        Board(tmp_path / "root").answer("run", {"run": "run"})


def test_a_link_that_is_made_while_the_run_is_open_is_not_read(tmp_path):
    run = run_in(tmp_path / "root/run")
    board = Board(tmp_path / "root")
    assert board.answer("run", {"run": "run"})["steps"] == 1
    (run / "events.jsonl").rename(tmp_path / "secret")
    (run / "events.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(RecordError, match="lead out"):
        board.answer("run", {"run": "run"})


def test_a_run_that_becomes_a_link_while_it_is_open_is_not_read(tmp_path):
    run = run_in(tmp_path / "root/run")
    board = Board(tmp_path / "root")
    board.answer("run", {"run": "run"})
    run.rename(tmp_path / "outside")
    run.symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="lead out"):
        board.answer("run", {"run": "run"})


def test_a_link_within_the_folder_is_followed_and_one_of_the_tokenizer_that_leads_out_is_not(tmp_path):
    run = run_in(tmp_path / "root/run [1]")
    (run / "events.jsonl").rename(tmp_path / "root/events.jsonl")
    (run / "events.jsonl").symlink_to("../events.jsonl")
    assert list(FolderIndex(tmp_path / "root").runs) == ["run [1]"]
    (tmp_path / "outside").mkdir()
    (run / "tokenizer").symlink_to(tmp_path / "outside")
    assert list(FolderIndex(tmp_path / "root").runs) == []


def test_a_lab_or_a_trace_with_a_link_that_leads_out_is_not_shown(tmp_path):
    lab_in(tmp_path / "root/lab")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root/lab/hypotheses/.h02-other.md").symlink_to(tmp_path / "secret")
    (tmp_path / "root/trace").mkdir()
    (tmp_path / "root/trace/trace.json").write_text("{}")
    (tmp_path / "root/trace/000000.safetensors").symlink_to(tmp_path / "secret")
    index = FolderIndex(tmp_path / "root")
    assert (index.labs, index.runs, len(index.notes)) == ({}, {}, 2)


def test_a_folder_that_vanishes_is_reported_and_then_gone(tmp_path):
    run = run_in(tmp_path / "a")
    run_in(tmp_path / "b")
    board = Board(tmp_path)
    assert len(board.answer("runs", {})["runs"]) == 2
    board.answer("run", {"run": "a"})
    shutil.rmtree(run)
    with pytest.raises(RecordError, match=r"cannot read .*/a/|not a run directory|there is no run"):
        board.answer("run", {"run": "a"})
    assert [each["run"] for each in board.answer("runs", {})["runs"]] == ["b"]
    assert list(board.overview._lines) == ["b"]


def test_a_run_that_was_made_anew_in_its_place_is_another(tmp_path):
    with opened_run(tmp_path / "a", name="first", grpo={"clip_low": 0.1}) as writer:
        write(writer, 0, **{"reward/mean": 0.25})
    board = Board(tmp_path)
    before = board.answer("run", {"run": "a"})
    shutil.rmtree(tmp_path / "a")
    with opened_run(tmp_path / "a", name="second", grpo={"clip_low": 0.3}) as writer:
        write(writer, 0, **{"reward/mean": 0.75})
    now = board.answer("run", {"run": "a"})
    assert (before["name"], now["name"]) == ("first", "second")
    assert (before["reward"]["mean"], now["reward"]["mean"]) == (0.25, 0.75)
    lows = [each["bounds"]["grpo"]["ratio"][0]["y"] for each in (before, now)]
    assert lows == pytest.approx([0.9, 0.7])


def test_a_folder_that_may_not_be_looked_into_is_reported(tmp_path):
    run_in(tmp_path / "a")
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def refusing(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        index = FolderIndex(tmp_path)
    assert list(index.runs) == ["a"]
    assert index.notes == [f"{tmp_path / 'closed'} cannot be read: Permission denied"]


def test_too_many_folders_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("truing.board.data.discovery.MAX_FOLDERS", 3)
    for i in range(5):
        (tmp_path / f"{i}").mkdir()
    assert FolderIndex(tmp_path).notes == ["only 3 folders were searched; open the board in a subfolder"]


@pytest.mark.parametrize("name", ["../outside", "/etc", "a/../a", ".", "a/", "a\0", "~", "%2e%2e", "A"])
def test_no_name_but_one_that_was_found_is_a_run(tmp_path, name):
    run_in(tmp_path / "root/a")
    run_in(tmp_path / "outside")
    board = Board(tmp_path / "root")
    for view in ("run", "tasks", "samples"):
        with pytest.raises(RecordError, match="there is no run"):
            board.answer(view, {"run": name})
    with pytest.raises(RecordError, match="there is no lab"):
        board.answer("lab", {"lab": name})


def test_a_pipe_in_a_run_keeps_nobody_waiting(tmp_path):
    for name in ("good", "bad"):
        with opened_run(tmp_path / name) as writer:
            write(writer, 0)
    board = Board(tmp_path)
    (tmp_path / "bad/events.jsonl").unlink()
    os.mkfifo(tmp_path / "bad/events.jsonl")
    with pytest.raises(RecordError, match="neither a file nor a folder"):
        board.answer("run", {"run": "bad"})
    answer = Board(tmp_path).answer("runs", {})
    assert [each["run"] for each in answer["runs"]] == ["good"]
    assert "bad contains something that is neither a file nor a folder; it is not shown" in answer["notes"][0]
