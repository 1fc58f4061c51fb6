"""`eval.grader`: a second function grades each evaluation, and pays nothing."""

import pytest
from command import truing
from runs import MINI

import truing as package
from truing.analysis.estimate import read_second_estimate
from truing.analysis.evaluation import read_evaluation
from truing.config import resolve
from truing.config.run_trust import outside_actions
from truing.errors import RecipeError, RewardError
from truing.record import RunReader

GRADERS = """
def contrary(rollout, task):
    return 1.0 - (rollout.text == task.answer)

def fails(rollout, task):
    raise ValueError("no judge")

not_one = 3
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "graders.py").write_text(GRADERS)

    def made(name):
        grader = {} if name is None else {"grader": f"{tmp_path / 'graders.py'}:{name}"}
        evaluation = MINI["eval"] | {"samples": 2, "temperature": 1.0} | grader
        return MINI | {"stages": ["grpo"], "eval": evaluation}

    return made


def train(recipe, out):
    return package.train(recipe, out=out, on_event=lambda *_: None)


def evaluations(run):
    return [read_evaluation(dict(each.payload)) for each in RunReader(run).events() if each.kind == "eval"]


def test_each_answer_of_each_evaluation_is_graded_again(tmp_path, recipe):
    train(recipe("contrary"), tmp_path / "run")
    for evaluation in evaluations(tmp_path / "run"):
        assert evaluation.second.keys() == evaluation.reward.keys()
        for task, rewards in evaluation.earned.items():
            assert evaluation.second[task] == [1.0 - reward for reward in rewards]
        second = evaluation.by_second_grader()
        assert second.estimate().mean == pytest.approx(1 - evaluation.estimate().mean)
        assert second.bounds == (0.0, 1.0)


def test_its_estimate_is_on_record_beside_the_paid_one(tmp_path, recipe):
    train(recipe("contrary"), tmp_path / "run")
    payloads = [each.payload for each in RunReader(tmp_path / "run").events() if each.kind == "eval"]
    for payload in payloads:
        assert read_second_estimate(payload) == read_evaluation(payload).by_second_grader().estimate()
    train(recipe(None), tmp_path / "without")
    assert not any("second_estimate" in each.payload for each in RunReader(tmp_path / "without").events())


def test_it_pays_nothing(tmp_path, recipe):
    runs = tmp_path / "with", tmp_path / "without"
    train(recipe("contrary"), runs[0])
    train(recipe(None), runs[1])
    rewards, others = ([row.metrics["reward/mean"] for row in RunReader(run).steps()] for run in runs)
    assert rewards == others
    assert [each.by_second_grader() for each in evaluations(runs[1])] == [None, None]


def test_one_that_fails_ends_the_run_with_its_error(tmp_path, recipe):
    with pytest.raises(RewardError, match="no judge"):
        train(recipe("fails"), tmp_path / "run")


@pytest.mark.parametrize(("name", "words"), [("missing", "has no 'missing'"), ("not_one", "is a int")])
def test_what_is_no_function_is_refused_before_training(tmp_path, recipe, name, words):
    with pytest.raises(RecipeError, match=words):
        train(recipe(name), tmp_path / "run")
    assert not (tmp_path / "run" / "steps.jsonl").exists()


def test_a_run_of_others_asks_before_it_imports_one(tmp_path, recipe):
    train(recipe("contrary"), tmp_path / "run")
    recorded = resolve(RunReader(tmp_path / "run").run_fact("recipe"))
    assert any("(eval.grader)" in each for each in outside_actions(recorded))
    outcome = truing("eval", tmp_path / "run")
    assert outcome.code == 2
    assert "--trust" in outcome.err
