"""A second grader on the board: its gain beside the paid one, and the answers that it refuses."""

import pytest
from shown import evaluation, graded, opened_run, write

from truing.analysis.evaluation import read_evaluation
from truing.board.queries import Board
from truing.errors import BadRequestError, RecordError

TASKS = 40


def shares(paid, second):
    return [float(i < TASKS * paid) for i in range(TASKS)], [float(i < TASKS * second) for i in range(TASKS)]


def board_with(tmp_path, *evaluations, steps=4):
    """The board over a run of these evaluations, the last one after its steps."""
    with opened_run(tmp_path / "run", stages=["grpo"]) as writer:
        writer.write_event("stage", stage="grpo", steps=steps, first_step=0)
        for each in evaluations[:-1]:
            writer.write_event("eval", **each)
        for step in range(steps):
            write(writer, step)
        writer.write_event("eval", **evaluations[-1])
    return Board(tmp_path)


def second_of(tmp_path, *evaluations):
    answer = board_with(tmp_path, *evaluations).answer("run", {"run": "run"})
    assert answer["trouble"] == ""
    return answer["second"]


def test_a_paid_gain_that_the_second_grader_does_not_see_is_denied(tmp_path):
    base, last = graded("base", *shares(0.2, 0.2)), graded("after_grpo", *shares(0.9, 0.2), step=4)
    second = second_of(tmp_path, base, last)
    gains = second["gains"]
    assert (gains["stage"], gains["denied"]) == ("grpo", True)
    assert gains["paid"]["mean"] == pytest.approx(0.7)
    assert gains["paid"]["low"] > 0
    assert gains["second"]["mean"] == 0
    assert [(each["name"], each["x"], each["mean"]) for each in second["at"]] == [
        ("base", 0, 0.2),
        ("after_grpo", 4, 0.2),
    ]
    expected = read_evaluation(last).by_second_grader().estimate()
    assert second["at"][1]["low"] == expected.low
    assert second["refused_count"] == 28
    assert {(each["paid"], each["second"]) for each in second["refused"]} == {(1.0, 0.0)}


def test_a_gain_that_it_sees_too_is_not_denied(tmp_path):
    ends = graded("base", *shares(0.2, 0.2)), graded("after_grpo", *shares(0.9, 0.8), step=4)
    second = second_of(tmp_path, *ends)
    assert not second["gains"]["denied"]
    assert second["refused_count"] == 4


def test_before_two_evaluations_there_is_no_gain_and_without_a_second_grader_nothing(tmp_path):
    assert second_of(tmp_path / "one", graded("base", *shares(0.5, 0.2)))["gains"] is None
    assert second_of(tmp_path / "none", evaluation("base", 0.5)) is None


def test_a_damaged_value_of_it_hides_nothing_else(tmp_path):
    damaged = graded("base", *shares(0.5, 0.2)) | {"second": {"t0": [None]}}
    answer = board_with(tmp_path, damaged).answer("run", {"run": "run"})
    assert answer["second"] is None
    assert "the second grader" in answer["trouble"]
    assert answer["steps"] == 4


def answers_of(board, **query):
    return board.answer("answers", {"run": "run"} | query)


def listed(answer):
    return [(each["answer"], each["paid"], each["second"]) for each in answer["answers"]]


def test_answers_are_listed_with_both_values_the_most_refused_first(tmp_path):
    last = graded("after_grpo", [0.5, 1.0, 0.0, 1.0], [0.5, 0.0, 1.0, 0.75], answers=["a", "b", "c", "d"])
    board = board_with(tmp_path, graded("base", [0.0] * 4, [0.0] * 4), last)
    answer = answers_of(board)
    assert (answer["evaluation"], answer["evaluations"]) == ("after_grpo", ["base", "after_grpo"])
    assert [each["answer"] for each in answer["answers"]] == ["b", "d", "a", "c"]
    assert [each["difference"] for each in answer["answers"]] == [-1.0, -0.25, 0.0, 1.0]
    assert (answer["paid"]["mean"], answer["second"]["mean"]) == (0.625, 0.5625)
    assert listed(answers_of(board, refused="1")) == [("b", 1.0, 0.0), ("d", 1.0, 0.75)]
    by_second = answers_of(board, order="second", backwards="1")
    assert [each["answer"] for each in by_second["answers"]] == ["c", "d", "a", "b"]
    assert listed(answers_of(board, task="t2")) == [("c", 0.0, 1.0)]
    assert answers_of(board, evaluation="base")["refused_count"] == 0


def test_which_answer_earned_what_is_unknown_where_a_rollout_failed(tmp_path):
    last = graded("base", [0.5, 1.0], [0.5, 0.0], answers=["a", "b"])
    last |= {"answers": {"t0": ["a"], "t1": ["b", "cut"], "t2": [""]}, "failed": {"t2": "no tool"}}
    answer = answers_of(board_with(tmp_path, last))
    assert listed(answer) == [("a", 0.5, 0.5), ("b", None, None), ("cut", None, None), ("", None, None)]
    assert [each["error"] for each in answer["answers"]] == ["", "", "", "no tool"]


def test_without_a_second_grader_answers_come_as_recorded_and_pages_are_of_a_hundred(tmp_path):
    paid = [i / 250 for i in range(250)]
    many = graded("base", paid, paid)
    del many["second"], many["second_estimate"]
    board = board_with(tmp_path, many)
    answer = answers_of(board, start="200")
    assert answer["second"] is None
    assert [each["task"] for each in answer["answers"]] == [f"t{i}" for i in range(200, 250)]
    assert (answer["count"], answer["every"]) == (250, 250)
    assert answers_of(board, order="paid", backwards="1")["answers"][0]["task"] == "t249"


def test_before_the_first_evaluation_there_are_no_answers(tmp_path):
    answer = answers_of(board_with(tmp_path, evaluation("base", 0.5)))
    assert (answer["evaluations"], answer["answers"], answer["paid"]) == ([], [], None)


def test_other_evaluations_and_orders_are_refused(tmp_path):
    board = board_with(tmp_path, graded("base", [0.5, 1.0], [0.5, 0.0]))
    with pytest.raises(RecordError, match="no answers of the evaluation elsewhere"):
        answers_of(board, evaluation="elsewhere")
    with pytest.raises(BadRequestError, match="cannot be sorted by length"):
        answers_of(board, order="length")
