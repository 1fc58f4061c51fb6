"""Forks on the board: of which run each is one, and the experiment on a run with its arms and pairs."""

import json
import shutil

import pytest
from shown import ARMS, experiment, forked_run

from truing.board.queries import Board
from truing.errors import RecordError
from truing.lab.forks.plan import PLAN
from truing.lab.forks.result import error_of
from truing.lab.stats.e_process import min_pairs

FEWEST = min_pairs(error_of(len(ARMS)))


def test_each_arm_has_its_effect_e_value_and_verdict_and_the_first_line_is_the_answer(tmp_path):
    experiment(tmp_path, (0.2, -0.1), FEWEST + 1)
    told = Board(tmp_path).answer("forks", {"run": "run"})["experiment"]
    assert (told["stage"], told["at"], told["steps"]) == ("grpo", 2, 2)
    assert told["answer"].startswith("with grpo.learning_rate=0.003 the reward is higher")
    assert [each["verdict"] for each in told["arms"]] == ["helps", "hurts"]
    assert [each["effect"] for each in told["arms"]] == pytest.approx([0.2, -0.1])
    assert all(each["low"] <= each["effect"] <= each["high"] for each in told["arms"])
    assert all(each["e_value"] >= each["needed"] == 1 / error_of(2) for each in told["arms"])
    assert told["left_out"] == ("larger groups: no memory",)


def test_forks_are_named_by_pair_with_their_rewards(tmp_path):
    plan = experiment(tmp_path, (0.2, -0.1), 2)
    shutil.rmtree(tmp_path / "run-experiment" / plan.fork_name(ARMS[1].name, 1))
    unfinished = tmp_path / "run-experiment" / plan.fork_name("", 2)
    forked_run(unfinished, "../../run", [0.0], finished=False)
    told = Board(tmp_path).answer("forks", {"run": "run"})["experiment"]
    names = [[each["run"] for each in pair] for pair in told["pairs"]]
    assert names == [
        [f"run-experiment/arm{i}-pair1" for i in range(3)],
        ["run-experiment/arm0-pair2", "run-experiment/arm1-pair2", None],
        ["run-experiment/arm0-pair3", None, None],
    ]
    rewards = [[each["reward"] for each in pair] for pair in told["pairs"]]
    assert rewards[0] == pytest.approx([0.5, 0.7, 0.4])
    assert rewards[1] == pytest.approx([0.51, 0.71, float("nan")], nan_ok=True)
    assert rewards[2] == pytest.approx([float("nan")] * 3, nan_ok=True)
    assert [each["pairs"] for each in told["arms"]] == [2, 1]
    assert told["answer"] == f"not decided: {FEWEST} pairs are the fewest that can"


def test_a_fork_that_trains_on_is_read_again_until_it_is_finished(tmp_path):
    plan = experiment(tmp_path, (0.2, -0.1), 1)
    folder = tmp_path / "run-experiment" / plan.fork_name("", 0)
    shutil.rmtree(folder)
    forked_run(folder, "../../run", [0.0], finished=False)
    board = Board(tmp_path)
    assert board.answer("forks", {"run": "run"})["experiment"]["arms"][0]["pairs"] == 0
    shutil.rmtree(folder)
    forked_run(folder, "../../run", [0.0, 0.5])
    assert board.answer("forks", {"run": "run"})["experiment"]["arms"][0]["pairs"] == 1


def test_a_fork_names_its_parent_on_its_page_and_in_the_list(tmp_path):
    experiment(tmp_path, (0.2, -0.1), 1)
    board = Board(tmp_path)
    expected = {"run": "run", "name": "run", "stage": "grpo", "step": 2, "changes": list(ARMS[0].changes)}
    assert board.answer("forks", {"run": "run-experiment/arm1-pair1"})["parent"] == expected
    parents = {each["run"]: each["parent"] for each in board.answer("runs", {})["runs"]}
    assert parents["run-experiment/arm1-pair1"] == expected
    assert parents["run"] is None
    assert board.answer("forks", {"run": "run-experiment/arm1-pair1"})["experiment"] is None


def test_both_may_be_moved_together_and_a_parent_elsewhere_has_its_name_only(tmp_path):
    experiment(tmp_path / "a", (0.2, -0.1), 1)
    shutil.move(tmp_path / "a", tmp_path / "b")
    board = Board(tmp_path)
    assert board.answer("forks", {"run": "b/run-experiment/arm0-pair1"})["parent"]["run"] == "b/run"
    alone = Board(tmp_path / "b/run-experiment").answer("forks", {"run": "arm0-pair1"})["parent"]
    assert (alone["run"], alone["name"]) == (None, "run")


def test_a_damaged_plan_is_an_error_of_the_forks_alone(tmp_path):
    experiment(tmp_path, (0.2, -0.1), 1)
    path = tmp_path / "run-experiment" / PLAN
    path.write_text(json.dumps({"stage": "grpo"}))
    board = Board(tmp_path)
    with pytest.raises(RecordError, match="the record of run is malformed"):
        board.answer("forks", {"run": "run"})
    assert board.answer("run", {"run": "run"})["trouble"] == ""


def test_a_plan_that_is_a_link_is_not_read(tmp_path):
    experiment(tmp_path / "runs", (0.2, -0.1), 1)
    path = tmp_path / "runs/run-experiment" / PLAN
    shutil.move(path, tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    board = Board(tmp_path / "runs")
    assert board.answer("forks", {"run": "run"})["experiment"] is None
    assert "links that lead out" in "".join(board.folders.notes)
