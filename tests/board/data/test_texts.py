"""What prompts ask and samples answer is read as far as there is time, and kept."""

import pytest
from recorded import make_sample
from shown import changed, opened_run, write

from truing.board.data import texts as texts_module
from truing.board.queries import Board
from truing.board.views import prompts
from truing.record import compact

TASKS = 5


def answer_of(board, view, **query):
    return board.answer(view, {"run": "run", **query})


@pytest.mark.parametrize("compacted", [False, True])
def test_a_search_reads_as_far_as_there_is_time_and_is_complete_in_the_end(tmp_path, monkeypatch, compacted):
    """One prompt a step; of a question that has no time, one step is read for the search."""
    with opened_run(tmp_path / "run") as writer:
        for step in range(TASKS):
            messages = ({"role": "user", "content": f"what is {step}?"},)
            row = changed(make_sample(f"{step}"), reward=0.0, task_id=f"task {step}", messages=messages)
            write(writer, step, rows=[row])
    if compacted:
        compact(tmp_path / "run")
    board = Board(tmp_path)
    answer_of(board, "samples", start="99")  # no line of it: no words are read
    monkeypatch.setattr(prompts, "READ_SECONDS", -1.0)
    left, counts = [], []
    while not left or left[-1]:
        answer = answer_of(board, "tasks", text="IS 4")
        left.append(answer["unread"])
        counts.append(answer["count"])
    assert (left, counts) == ([4, 3, 2, 1, 0], [0, 0, 0, 0, 1])
    assert [each["prompt"] for each in answer["tasks"]] == ["what is 4?"]


def answered(folder, steps, texts):
    """A run whose samples answer with these texts."""
    with opened_run(folder) as writer:
        for step in range(steps):
            rows = [changed(make_sample(f"{step}/{i}"), text=text) for i, text in enumerate(texts)]
            write(writer, step, rows=rows)
    return Board(folder.parent)


@pytest.mark.parametrize("compacted", [False, True])
def test_samples_say_how_they_answer(tmp_path, compacted):
    texts = ["", "ä" * 160, "ö" * 161]
    board = answered(tmp_path / "run", 2, texts)
    if compacted:
        compact(tmp_path / "run")
    answer = answer_of(board, "samples", order="turn_tokens")
    assert answer["unread"] == 0
    expected = {"0": "", "1": "ä" * 160, "2": "ö" * 160 + "…"}
    assert [each["answer"] for each in answer["samples"]] == [
        expected[each["sample_id"][-1]] for each in answer["samples"]
    ]


def test_samples_say_what_they_are_asked(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        for step in range(2):
            messages = ({"role": "user", "content": f"what is {step}?"},)
            write(
                writer,
                step,
                rows=[changed(make_sample(f"{step}"), task_id=f"task {step}", messages=messages)],
            )
    answer = answer_of(Board(tmp_path), "samples")
    assert [each["prompt"] for each in answer["samples"]] == ["what is 0?", "what is 1?"]
    assert answer["unread"] == 0


def test_answers_that_there_was_no_time_for_are_read_later(tmp_path, monkeypatch):
    board = answered(tmp_path / "run", 3, ["yes", "no"])
    answer_of(board, "samples")
    board = Board(tmp_path)
    monkeypatch.setattr(prompts, "READ_SECONDS", -1.0)
    left = []
    while (answer := answer_of(board, "samples"))["waiting"] or answer["unread"]:
        left.append((answer["waiting"], answer["unread"]))
        assert answer["unread"] == sum(each["answer"] is None for each in answer["samples"])
    assert left
    assert [each["answer"] for each in answer["samples"]] == ["yes", "no"] * 3


def test_no_more_answers_are_kept_than_are_meant_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(texts_module, "MAX_CACHED_ANSWERS", 2)
    board = answered(tmp_path / "run", 2, ["yes", "no", "maybe"])
    for _ in range(2):
        answer_of(board, "samples")
    with board.open_runs.locked("run") as (opened,):
        assert len(opened.sample_texts._answers) == 2
