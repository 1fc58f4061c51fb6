"""A run's page: where evaluations lie, what was told and when, and how it stands."""

import pytest
from shown import evaluation, facts_of, finding, opened_run, write

from truing.analysis.scorecard import scorecard
from truing.board.queries import Board
from truing.config import resolve
from truing.record import Event, RunReader
from truing.record.step_columns import columns_of


@pytest.fixture
def run_board(tmp_path):
    """Three steps of SFT, four of GRPO, evaluations between them, and events of all kinds."""
    with opened_run(tmp_path / "run", eval={"every": 1}) as writer:
        writer.write_event("eval", **evaluation("base", 0.1))
        for step in range(3):
            write(writer, step, "sft")
            if step < 2:
                writer.write_event("eval", **evaluation(f"sft@{step + 1}", 0.2))
        writer.write_event("eval", **evaluation("after_sft", 0.3))
        writer.write_event("stage", stage="grpo", steps=4, first_step=0)
        for step in range(4):
            write(writer, step, facts={"odd": step})
            writer.write_event("boundary", stage="grpo", step=step, lines=[["a", "S"]])
        writer.write_event("eval", **evaluation("grpo@2", 0.4))
        writer.write_event("eval", **evaluation("elsewhere@x", 0.5))
        writer.write_event("resumed", stage="grpo", step=4, suppress={})
        writer.write_event("incident", what="x", stage="grpo", step=3, text="a rollout failed")
        writer.write_event("pause", need=3)
        writer.write_event("checkpoint", name="grpo-4")
        writer.write_event(
            "stopped", reason="it broke", error="RecordError", message="it broke\n  got: 5", traceback=""
        )
    return Board(tmp_path).answer("run", {"run": "run"})


def test_evaluations_lie_behind_the_steps_that_they_followed(run_board):
    placed = {each["name"]: each["x"] for each in run_board["evaluations_at"]}
    assert placed == {"base": 0, "sft@1": 1, "sft@2": 2, "after_sft": 3, "grpo@2": 5}
    assert run_board["evaluations_at"][0] == {
        "name": "base",
        "x": 0,
        "mean": 0.1,
        "low": 0.0,
        "high": 0.2,
        "tasks": 8,
        "samples": None,
        "supposes": "many tasks",
    }


def test_stages_have_their_rows_and_the_number_of_their_first_step(run_board):
    assert run_board["spans"] == [
        {"stage": "sft", "start": 0, "end": 3, "first": 1, "numbers": None},
        {"stage": "grpo", "start": 3, "end": 7, "first": 1, "numbers": None},
    ]
    assert (run_board["steps"], run_board["at"], run_board["stages"]) == (
        7,
        ("grpo", 4, 3),
        (("sft", 3, 3), ("grpo", 4, 3)),
    )


def test_what_happened_is_reported_newest_first_and_counts_from_one(run_board):
    assert [(each["kind"], each["text"]) for each in run_board["events"]] == [
        ("stopped", "it broke\n  got: 5"),
        ("pause", "need 3"),
        ("incident", "grpo 4: a rollout failed"),
        ("resumed", "grpo: resumed after 4 steps"),
        ("eval", "elsewhere@x: 0.500 [0.400, 0.600] (assumes many tasks) of 8 tasks"),
        ("eval", "grpo@2: 0.400 [0.300, 0.500] (assumes many tasks) of 8 tasks"),
        ("stage", "grpo: 4 steps, from 1"),
        ("eval", "after_sft: 0.300 [0.200, 0.400] (assumes many tasks) of 8 tasks"),
        ("eval", "sft@2: 0.200 [0.100, 0.300] (assumes many tasks) of 8 tasks"),
        ("eval", "sft@1: 0.200 [0.100, 0.300] (assumes many tasks) of 8 tasks"),
        ("eval", "base: 0.100 [0.000, 0.200] (assumes many tasks) of 8 tasks"),
    ]
    assert [each["step"] for each in run_board["words"]] == [1, 2, 3, 4]


def test_times_are_utc(tmp_path):
    from truing.board.data.events import event_log

    assert event_log([Event(86_400.0, "note", {"text": "x"})]) == [
        {"when": "1970-01-02 00:00:00", "kind": "note", "text": "x"}
    ]


def test_criteria_are_those_of_the_scorecard(board, trained):
    for name in ("mini", "critic"):
        reader = RunReader(trained / name)
        events = reader.events()
        expected = scorecard(columns_of(reader.steps()), resolve(reader.run_json()["recipe"]), "cpu", events)
        answer = board.answer("run", {"run": name})["scorecard"]
        assert answer == [vars(each) for each in expected]
        line = next(each for each in board.answer("runs", {})["runs"] if each["run"] == name)
        verdicts = [each.verdict for each in expected]
        assert line["scorecard"] == {each: verdicts.count(each) for each in verdicts}


def test_what_is_said_of_the_run_is_what_run_json_says(run_board):
    facts = facts_of(eval={"every": 1})
    assert (run_board["created"], run_board["device"], run_board["model"]) == (
        "2026-01-02T03:04:05Z",
        "cpu",
        "tiny",
    )
    assert run_board["about"]["sampling_params"] == facts["sampling_params"]
    assert run_board["recipe"].startswith('name = "mini"')
    assert (run_board["trouble"], run_board["state"], run_board["why"]) == ("", "crashed", "it broke")


def test_what_was_noticed_before_training_is_beside_the_findings(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        writer.write_event("finding", text="saying nothing earns the full reward")
        write(writer, 0)
        writer.write_event("finding", **finding("LEN001"))
    head = Board(tmp_path).answer("run", {"run": "run"})
    assert head["noticed"] == ["saying nothing earns the full reward"]
    assert [each["code"] for each in head["findings"]] == ["LEN001"]


def test_a_fact_is_distinguished_from_what_was_found(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
        writer.write_event("fact", **finding("LEN003", "FACT"))
    board = Board(tmp_path)
    head = board.answer("run", {"run": "run"})
    assert (head["findings"], [each["code"] for each in head["facts"]]) == ([], ["LEN003"])
    assert board.answer("runs", {})["runs"][0]["findings"] == []


def test_an_evaluation_stands_where_its_stage_counts_from(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        for step in range(40, 52):
            write(writer, step)
        writer.write_event("eval", **evaluation("grpo@50", 0.5))
    (point,) = Board(tmp_path).answer("run", {"run": "run"})["evaluations_at"]
    assert point["x"] == 10
