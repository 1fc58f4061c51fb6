"""Two runs beside each other: what was declared otherwise, where they part, and what each came to."""

import math

import pytest
from recorded import make_sample
from shown import changed, evaluation, opened_run, write

from truing.analysis.compare import compare
from truing.board.data.run_view import RunView
from truing.board.queries import Board
from truing.board.views import compare as compare_page


@pytest.fixture
def two(tmp_path):
    """Two runs of four steps; in the third, token 2 of a sample is another."""
    for name, rate, token in (("a", 1e-3, 7), ("b/c", 2e-3, 8)):
        with opened_run(tmp_path / name, grpo={"steps": 4, "learning_rate": rate}) as writer:
            for step in range(4):
                ids = [1, 2, token if step == 2 else 5, 4]
                rows = [changed(make_sample(f"0/grpo/{step}/0/0", 4, seed=step), token_ids=ids)]
                write(writer, step, rows=rows, **{"reward/mean": rate * step, "lr": rate})
            writer.write_event("eval", **evaluation("grpo@2", 0.2))
            if name == "a":
                facts = {"stage": "grpo", "step": 3, "to": 1, "reason": "r", "kept": "abandoned/grpo-1"}
                writer.write_event("rollback", **facts)
    return Board(tmp_path)


def test_what_was_declared_otherwise(two):
    answer = two.answer("compare", {"a": "a", "b": "b/c"})
    assert answer["recipe"] == [{"key": "grpo.learning_rate", "first": "0.001", "second": "0.002"}]
    assert answer["facts"] == []
    assert [each["run"] for each in answer["runs"]] == ["a", "b/c"]
    assert answer["runs"][0]["evaluations_at"] == []
    assert [each["x"] for each in answer["runs"][1]["evaluations_at"]] == [2]
    assert {"lr", "reward/mean", "seconds/forward"} <= set(answer["numbers"])


def test_where_they_part_is_what_the_command_finds(two):
    answer = two.answer("compare_tokens", {"a": "a", "b": "b/c"})
    result = compare(*(two.folders.runs[name] for name in ("a", "b/c"))).first_difference
    at = answer["first_difference"]
    assert (answer["same"], at["step"]) == (2, 3)
    assert (at["what"], at["token"]) == ("token_ids", 2)
    assert (at["first"], at["second"]) == (result.first, result.second) == (7, 8)
    beside = {each["name"]: (each["first"], each["second"]) for each in answer["beside"]}
    assert beside["grpo reward/mean"] == pytest.approx((0.0015, 0.003))
    shown = "0.200 [0.100, 0.300] (assumes many tasks) of 8 tasks"
    assert beside["eval grpo@2"] == (None, shown)  # the first was undone


def test_an_answer_that_reads_otherwise_is_reported_as_text(two, monkeypatch):
    monkeypatch.setattr(RunView, "token_texts", lambda _, ids: [f"<{i}>" for i in ids])
    answer = two.answer("compare_tokens", {"a": "a", "b": "b/c"})["words"]
    assert (answer["stage"], answer["step"], answer["sample"], answer["token"]) == (
        "grpo",
        3,
        "0/grpo/2/0/0",
        2,
    )
    first, second = answer["sides"]
    assert (first["before"], first["token"], first["after"]) == ("<1><2>", "<7>", "<4>")
    assert (second["before"], second["token"], second["after"]) == ("<1><2>", "<8>", "<4>")
    assert (first["cut"], first["more"], first["reward"]) == (False, 0, 1.0)


def test_of_a_long_answer_what_is_around_the_token_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(RunView, "token_texts", lambda _, ids: [f"<{i}>" for i in ids])
    for name, length in (("a", 200), ("b", 100)):
        with opened_run(tmp_path / name) as writer:
            ids = list(range(100)) + [7] * (length - 100)
            write(writer, 0, rows=[changed(make_sample("0/grpo/0/0/0", length), token_ids=ids)])
    first, second = Board(tmp_path).answer("compare_tokens", {"a": "a", "b": "b"})["words"]["sides"]
    after = 200 - 101 - compare_page.TOKENS_AFTER
    assert (first["token"], first["cut"], first["more"]) == ("<7>", True, after)
    assert first["before"].startswith(f"<{100 - compare_page.TOKENS_BEFORE}>")
    assert (second["token"], second["after"], second["more"]) == ("", "", 0)
    assert second["before"] == first["before"]


def test_runs_of_other_seeds_and_other_tasks_have_no_answer_in_common(tmp_path):
    for name, seed, task in (("a", 0, "x"), ("b", 1, "x"), ("c", 0, "y")):
        with opened_run(tmp_path / name, seed=seed) as writer:
            ids = [1, 2, seed + 3, 4 + (task == "y")]
            write(writer, 0, rows=[changed(make_sample("0/grpo/0/0/0", 4), token_ids=ids, task_id=task)])
    board = Board(tmp_path)
    for other in ("b", "c"):
        answer = board.answer("compare_tokens", {"a": "a", "b": other})
        assert (answer["first_difference"]["what"], answer["words"]) == ("token_ids", None)


def test_evaluations_that_both_have_are_compared(tmp_path):
    for name, more in (("a", 0.0), ("b", 0.5)):
        with opened_run(tmp_path / name) as writer:
            reward = {f"t{i}": more + 0.1 * i for i in range(8)}
            writer.write_event("eval", **evaluation("base", 0.5) | {"reward": reward, "failed": {}})
    answer = Board(tmp_path).answer("compare", {"a": "a", "b": "b"})
    (found,) = answer["gains"]
    assert (found["name"], found["up"]) == ("base", 8)
    assert found["says"] == "the second is better, if differences are symmetric"
    assert found["paired"]["mean"] == pytest.approx(0.5)
    assert math.isnan(found["paired"]["low"])  # all gain the same
    assert answer["seeds"].startswith("both runs have seed 0")
    (printed,) = compare(tmp_path / "a", tmp_path / "b").gains
    assert math.isnan(printed.paired.low)


def test_no_more_steps_are_looked_at_than_reported(two, monkeypatch):
    monkeypatch.setattr(compare_page, "MAX_COMPARED_STEPS", 2)
    answer = two.answer("compare_tokens", {"a": "a", "b": "b/c"})
    assert (answer["same"], answer["looked_at"], answer["first_difference"]) == (2, 2, None)


def test_a_run_is_the_same_as_itself(two):
    answer = two.answer("compare_tokens", {"a": "a", "b": "a"})
    assert (answer["same"], answer["first_difference"], answer["note"]) == (4, None, "")
    answer = two.answer("compare", {"a": "a", "b": "a"})
    assert (answer["recipe"], answer["facts"]) == ([], [])
