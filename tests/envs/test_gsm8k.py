"""Problems of our own in GSM8K's form; then all problems of a data folder."""

import json

import pytest
from folders import ROOT

from truing.config import load_recipe
from truing.envs import checked_tasks, make_env
from truing.errors import DataError, RecipeError
from truing.rewards import grade

RECIPE = ROOT / "recipes" / "gsm8k.toml"


def row(number, **changes):
    solution = f"There are 2*{number}=<<2*{number}={2 * number}>>{2 * number} eggs.\n#### {2 * number:,}"
    return {"id": f"p{number}", "question": f"What is twice {number}?", "answer": solution} | changes


@pytest.fixture
def make(tmp_path):
    """The environment over given rows."""

    def over(rows, name="rows", **keys):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return make_env("gsm8k", {"data": str(path)} | keys)

    return over


def everything(env):
    return {task.task_id: task for split in ("train", "eval") for task in env.tasks(split)}


def test_a_row_as_a_task(make):
    env = make([row(i) for i in (1, 2, 3, 4, 600)])
    checked_tasks(env)
    task = everything(env)["gsm8k/p600"]
    assert [message["role"] for message in task.messages] == ["system", "user"]
    assert task.messages[-1]["content"] == "What is twice 600?"
    assert task.answer == "1,200"
    assert task.demonstration == "There are 2*600=1200 eggs.\n#### 1,200"


@pytest.mark.parametrize(
    ("response", "correct", "form"),
    [
        ("There are 1200.\n#### 1200", 1.0, 1.0),
        ("#### 1,200", 1.0, 1.0),
        ("#### $1,200.00", 1.0, 1.0),
        ("The answer is 1200.", 1.0, 0.0),
        (r"So \boxed{1200}", 1.0, 0.0),
        ("#### 1200\nor so", 1.0, 0.0),
        ("#### 12\n#### 1200", 1.0, 0.0),
        ("#### 120", 0.0, 1.0),
        ("#### -1200", 0.0, 1.0),
        ("#### 1.200", 0.0, 1.0),
        ("#### 1200 or 1201", 0.0, 0.0),
        ("1200 is wrong", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_what_a_response_earns(make, rollout_of, response, correct, form):
    env = make([row(i) for i in (1, 2, 3, 4, 600)], format_weight=0.5)
    graded = grade(rollout_of(everything(env)["gsm8k/p600"], response), env.rewards)
    assert graded.parts == {"correct": correct, "format": form}
    assert graded.reward == correct + 0.5 * form


def test_a_tolerance_is_declared(make, rollout_of):
    env = make([row(i) for i in range(1, 9)], tolerance=0.01)
    task = everything(env)["gsm8k/p8"]
    assert grade(rollout_of(task, "#### 16.1"), env.rewards)[0] == 1.0
    assert grade(rollout_of(task, "#### 16.2"), env.rewards)[0] == 0.0


def test_the_split_goes_by_question_or_by_a_file_of_its_own(make, tmp_path):
    rows = [row(i) for i in range(40)]
    env = make([*rows, row(3, id="twin", question="What is  twice 3? ")])
    sides = {name: {task.task_id for task in env.tasks(name)} for name in ("train", "eval")}
    assert 3 <= len(sides["eval"]) <= 18
    assert any({"gsm8k/p3", "gsm8k/twin"} <= side for side in sides.values())
    (tmp_path / "test.jsonl").write_text(json.dumps(row(99)), encoding="utf-8")
    env = make(rows, eval_data=str(tmp_path / "test.jsonl"), train_limit=30)
    assert [task.task_id for task in env.tasks("eval")] == ["gsm8k/p99"]
    assert [task.task_id for task in env.tasks("train")] == [f"gsm8k/p{i}" for i in range(30)]


def test_problems_without_an_id_are_named_by_their_content(make):
    rows = [{key: value for key, value in row(i).items() if key != "id"} for i in range(20)]
    names = set(everything(make(rows)))
    assert len(names) == 20
    assert names == set(everything(make(rows[::-1], name="other")))


def test_odd_rows_are_left_out_by_name(make):
    odd = [row(91, answer="#### many"), row(92, answer="no mark"), row(93, answer=None), row(1)]
    (note,) = make([*(row(i) for i in range(1, 9)), *odd]).notes
    assert note.startswith("left out rows that cannot be used: 4: p91 at ")
    assert all(name in note for name in ("p92", "p93", "another row has its id"))
    with pytest.raises(DataError, match="no number as its answer"):
        make(odd[:2])
    with pytest.raises(RecipeError, match=r"env\.tolerance"):
        make([row(1)], tolerance=-1)


def test_the_recipe_names_the_published_splits():
    recipe = load_recipe(RECIPE)
    assert recipe.env["data"] == "openai/gsm8k,main,train"
    assert recipe.env["eval_data"] == "openai/gsm8k,main,test[:200]"


def test_all_problems_of_a_data_folder(data, rollout_of):
    folder = data / "gsm8k"
    env = make_env("gsm8k", {"data": str(folder / "train.jsonl"), "eval_data": str(folder / "test.jsonl")})
    splits = checked_tasks(env)
    for split, file in (("train", "train.jsonl"), ("eval", "test.jsonl")):
        assert len(splits[split]) == len((folder / file).read_text(encoding="utf-8").splitlines()) > 0
    assert env.notes == ()
    for task in (*splits["train"], *splits["eval"]):
        assert "<<" not in task.demonstration
        assert grade(rollout_of(task, task.demonstration), env.rewards).parts == {
            "correct": 1.0,
            "format": 1.0,
        }
