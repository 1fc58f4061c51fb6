"""A fork goes on from a checkpoint of another run, under a recipe of its own."""

import os
import shutil

import pytest
from command import truing
from runs import MINI, assert_same_run

import truing as package
from truing.config import load_recipe, resolve
from truing.doctor.causes.read_history import history_of_run
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import STRONG_VERDICTS
from truing.errors import RecipeError, RecordError
from truing.record import RunReader
from truing.trainer.fork import fork

STEPS, AT = 6, 3


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A finished run that kept a checkpoint within its last stage."""
    out = tmp_path_factory.mktemp("fork") / "parent"
    table = MINI | {"checkpoint_every": AT, "grpo": MINI["grpo"] | {"steps": STEPS}}
    package.train(table, out=out, on_event=lambda *_: None)
    return out


def train(run):
    return package.train(load_recipe(run / "recipe.toml"), out=run, resume=True, on_event=lambda *_: None)


def forked(parent, out, *changes, step=AT):
    fork(parent, out, changes, step, "grpo")
    train(out)
    return RunReader(out)


def proven(run):
    return [
        f for each in diagnose_run(run).results() for f in each.findings if f.claim.verdict in STRONG_VERDICTS
    ]


def test_without_changes_it_has_the_bits_of_its_parent(parent, tmp_path):
    before = sorted((path, path.stat().st_mtime_ns) for path in parent.rglob("*"))
    forked(parent, tmp_path / "fork")
    assert_same_run(parent, tmp_path / "fork")
    assert sorted((path, path.stat().st_mtime_ns) for path in parent.rglob("*")) == before


def test_its_parent_and_its_changes_are_on_record(parent, tmp_path):
    reader = forked(parent, tmp_path / "fork", "grpo.learning_rate=1e-4")
    path = os.path.relpath(parent, tmp_path / "fork")
    expected = {"run": path, "stage": "grpo", "step": AT, "changes": ["grpo.learning_rate=1e-4"]}
    assert reader.run_json()["parent"] == expected | {"started": True}
    assert resolve(reader.run_fact("recipe")).grpo.learning_rate == 1e-4
    assert not (tmp_path / "fork" / "abandoned").exists()


def test_steps_before_it_are_judged_by_the_recipe_of_then(parent, tmp_path):
    changes = ("grpo.learning_rate=1e-4", "sampling.temperature=0.8", "grpo.steps=8")
    reader = forked(parent, tmp_path / "fork", *changes)
    rows = [row for row in reader.steps() if row.stage == "grpo"]
    assert len(rows) == 8
    assert [row.metrics["lr"] for row in rows[AT - 1 : AT + 1]] == [MINI["grpo"]["learning_rate"], 1e-4]
    assert proven(tmp_path / "fork") == []


def test_a_fork_of_a_fork_keeps_both_recipes(parent, tmp_path):
    table = ["checkpoint_every=1", "grpo.learning_rate=1e-4"]
    forked(parent, tmp_path / "one", *table)
    fork(tmp_path / "one", tmp_path / "two", ["grpo.learning_rate=1e-5"], 5, "grpo")
    train(tmp_path / "two")
    rates = [row.metrics["lr"] for row in RunReader(tmp_path / "two").steps() if row.stage == "grpo"]
    assert rates[AT - 1 :] == [MINI["grpo"]["learning_rate"], 1e-4, 1e-4, 1e-5]
    assert proven(tmp_path / "two") == []


def test_other_tasks_and_draws_are_those_of_the_fork(parent, tmp_path):
    reader = forked(parent, tmp_path / "fork", "env.kinds=['add-1']", "seed=7", "env.train=16", "env.eval=8")
    tables = [reader.table(row) for row in reader.steps() if row.stage == "grpo"]
    assert {sample.family for sample in tables[-1].samples} == {"arithmetic/add-1"}
    assert {sample.family for sample in tables[AT - 1].samples} != {"arithmetic/add-1"}
    assert proven(tmp_path / "fork") == []
    answers, known = reader.answers(), RunReader(parent).answers()
    assert known.items() <= answers.items()
    assert any(task.startswith("add-1") for task in answers)


def test_fewer_optimizer_steps_than_its_parent_made_are_no_fault(tmp_path):
    table = MINI | {"checkpoint_every": AT, "stages": ["grpo"]}
    table |= {"grpo": MINI["grpo"] | {"steps": AT + 1, "inner_epochs": 3}}
    package.train(table, out=tmp_path / "parent", on_event=lambda *_: None)
    forked(tmp_path / "parent", tmp_path / "fork", "grpo.inner_epochs=1")
    assert proven(tmp_path / "fork") == []


def test_another_target_moves_the_weight_from_its_own_steps_on(tmp_path):
    entropy = {"coef": 0.01, "target": 50.0, "step": 0.001}
    table = MINI | {"checkpoint_every": AT, "stages": ["grpo"], "entropy": entropy}
    package.train(
        table | {"grpo": MINI["grpo"] | {"steps": AT + 1}}, out=tmp_path / "parent", on_event=lambda *_: None
    )
    forked(tmp_path / "parent", tmp_path / "fork", "entropy.target=0.1")
    assert proven(tmp_path / "fork") == []


def test_weights_of_loss_terms_are_those_of_its_recipe(tmp_path):
    table = MINI | {"checkpoint_every": AT, "kl": {"coef": 0.5}, "entropy": {"coef": 0.1}}
    table |= {"grpo": MINI["grpo"] | {"steps": AT + 1}, "stages": ["grpo"]}
    package.train(table, out=tmp_path / "parent", on_event=lambda *_: None)
    forked(tmp_path / "parent", tmp_path / "fork", "kl.coef=0.05", "entropy.coef=0")
    assert proven(tmp_path / "fork") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lora.rank=2", "'lora"),
        ("sft.learning_rate=1e-5", "'sft.learning_rate'"),
        ("model.dtype=bfloat16", "'model.dtype'"),
        ("kl.coef=0.1", "needs a reference"),
        ("grpo.lr=1", "unknown recipe key"),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_refused_and_nothing_is_left(parent, tmp_path, change, words):
    with pytest.raises(RecipeError, match=words):
        fork(parent, tmp_path / "fork", [change], AT, "grpo")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_and_a_used_directory_are_refused(parent, tmp_path):
    with pytest.raises(RecordError, match="no checkpoint after these steps"):
        fork(parent, tmp_path / "fork", [], 5, "grpo")
    with pytest.raises(RecordError, match="exists already"):
        fork(parent, tmp_path, [])


def test_a_fork_that_is_interrupted_resumes(parent, tmp_path):
    fork(parent, tmp_path / "fork", ["grpo.learning_rate=1e-4"], AT, "grpo")
    shutil.copytree(tmp_path / "fork", tmp_path / "other")
    train(tmp_path / "fork")
    train(tmp_path / "fork")  # it is finished: nothing is trained again
    train(tmp_path / "other")
    assert_same_run(tmp_path / "fork", tmp_path / "other")


def test_the_command_says_how_to_train_it(parent, tmp_path):
    outcome = truing("fork", parent, "grpo.learning_rate=1e-4", "--to", tmp_path / "fork", "--step", AT)
    assert outcome.code == 0, outcome.err
    first, second = outcome.out.splitlines()
    assert first.endswith(f"goes on after step {AT} of grpo, with grpo.learning_rate=1e-4")
    assert (
        second
        == f"train it: truing train {tmp_path / 'fork' / 'recipe.toml'} --out {tmp_path / 'fork'} --resume"
    )
    assert truing(*second.split()[3:]).code == 0


def test_why_tells_of_its_own_steps(parent, tmp_path):
    out = tmp_path / "fork"
    forked(parent, out, "grpo.steps=8", "grpo.learning_rate=1e-4")
    history = history_of_run(out, diagnose_run(out))
    assert [row.step for row in history.steps] == list(range(AT, 8))
    assert truing("why", out).out.startswith(f"grpo after step {AT}, where the fork begins: ")
    fork(parent, tmp_path / "still", ("grpo.learning_rate=1e-4",), AT, "grpo")
    outcome = truing("why", tmp_path / "still")
    assert outcome.code == 2
    assert "has trained no step yet" in outcome.err
