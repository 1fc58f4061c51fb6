"""Two runs beside each other: what was declared otherwise, where they part, and what each came to."""

import pytest
from recorded import make_row
from shown import changed, evaluation, opened_run, write

from truing.board import compare_page
from truing.board.answers import Board
from truing.record.compare import compare


@pytest.fixture
def two(tmp_path):
    """Two runs of four updates; in the third, token 2 of a sample is another."""
    for name, rate, token in (("a", 1e-3, 7), ("b/c", 2e-3, 8)):
        with opened_run(tmp_path / name, grpo={"steps": 4, "learning_rate": rate}) as writer:
            for step in range(4):
                ids = [1, 2, token if step == 2 else 5, 4]
                rows = [changed(make_row(f"0/grpo/{step}/0/0", 4, seed=step), token_ids=ids)]
                write(writer, step, rows=rows, **{"reward/mean": rate * step, "lr": rate})
            writer.event("eval", **evaluation("grpo@2", 0.2))
            if name == "a":
                told = {"stage": "grpo", "step": 3, "to": 1, "reason": "r", "kept": "abandoned/grpo-1"}
                writer.event("rollback", **told)
    return Board(tmp_path)


def test_what_was_declared_otherwise(two):
    told = two.answer("compare", {"a": "a", "b": "b/c"})
    assert told["recipe"] == [{"key": "grpo.learning_rate", "first": "0.001", "second": "0.002"}]
    assert told["facts"] == []
    assert [each["run"] for each in told["runs"]] == ["a", "b/c"]
    assert told["runs"][0]["evaluations_at"] == []
    assert [each["x"] for each in told["runs"][1]["evaluations_at"]] == [2]
    assert {"lr", "reward/mean", "seconds/forward"} <= set(told["numbers"])


def test_where_they_part_is_what_the_command_finds(two):
    told = two.answer("parting", {"a": "a", "b": "b/c"})
    found = compare(*(two.places.runs[name] for name in ("a", "b/c"))).parting
    assert (told["same"], told["parting"]["update"], told["parting"]["step"]) == (2, 3, 2)
    assert (told["parting"]["what"], told["parting"]["token"]) == ("token_ids", 2)
    assert (told["parting"]["first"], told["parting"]["second"]) == (found.first, found.second) == (7, 8)
    beside = {each["name"]: (each["first"], each["second"]) for each in told["beside"]}
    assert beside["grpo reward/mean"] == pytest.approx((0.0015, 0.003))
    assert beside["eval grpo@2"] == (None, "0.200 [0.100, 0.300] of 8 tasks")  # the first was undone


def test_no_more_updates_are_looked_at_than_told(two, monkeypatch):
    monkeypatch.setattr(compare_page, "LOOKED_AT", 2)
    told = two.answer("parting", {"a": "a", "b": "b/c"})
    assert (told["same"], told["looked_at"], told["parting"]) == (2, 2, None)


def test_a_run_is_the_same_as_itself(two):
    told = two.answer("parting", {"a": "a", "b": "a"})
    assert (told["same"], told["parting"], told["note"]) == (4, None, "")
    told = two.answer("compare", {"a": "a", "b": "a"})
    assert (told["recipe"], told["facts"]) == ([], [])
