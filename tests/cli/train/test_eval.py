"""`truing eval`: the same fixed evaluation that the run made, of a recipe, a run or a checkpoint."""

import json
import shutil
from dataclasses import replace

import pytest
from command import truing as command
from runs import ADAPTER, mini_table

import truing
from truing.envs.arithmetic import env


@pytest.fixture(scope="module", autouse=True)
def _a_reward_that_sees_every_token():
    """An untrained policy has reward 0 everywhere, and 0 = 0 would test nothing."""

    def exact(rollout, task):
        return float(rollout.turns[0].token_ids.sum() % 97) / 97

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env, "exact", exact)
        yield


@pytest.fixture(scope="module")
def trained(_a_reward_that_sees_every_token, tmp_path_factory):
    """A run with that reward, which no other file may share."""
    out = tmp_path_factory.mktemp("eval") / "run"
    return truing.train(mini_table(**ADAPTER), out=out, on_event=lambda *_: None)


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of that run."""
    return replace(trained, run=shutil.copytree(trained.run, tmp_path / "finished"))


def evaluate(*words):
    outcome = command("eval", *words, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def mean_reward(evaluation):
    return sum(evaluation.reward.values()) / len(evaluation.reward)


@pytest.mark.integration
def test_a_run_is_evaluated_as_it_was_when_it_ended(finished):
    means = [mean_reward(evaluation) for evaluation in finished.evaluations.values()]
    assert len(set(means)) == 3
    result = evaluate(finished.run)
    assert result["eval"][str(finished.run)]["mean"] == pytest.approx(means[-1], abs=1e-12)
    assert result["eval"][str(finished.run)].keys() >= {"mean", "low", "high"}
    assert result["gain"] is None


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_checkpoint_is_the_policy_at_the_end_of_its_stage(finished, stage):
    expected = mean_reward(finished.evaluations[f"after_{stage}"])
    result = evaluate(finished.run, "--step", "3", "--stage", stage)
    assert result["eval"][str(finished.run)]["mean"] == pytest.approx(expected, abs=1e-12)


def test_a_recipe_is_evaluated_as_it_starts(finished, toml):
    result = evaluate(toml())
    (estimate,) = result["eval"].values()
    assert estimate["mean"] == pytest.approx(mean_reward(finished.evaluations["base"]), abs=1e-12)


def test_the_difference_is_paired_and_the_second_is_taken_from_the_first(finished, toml):
    path = toml()
    result = evaluate(finished.run, "--against", path)
    after, base = (finished.evaluations[name].reward for name in ("after_grpo", "base"))
    assert result["gain"]["mean"] == pytest.approx(sum(after[task] - base[task] for task in base) / len(base))
    assert list(result["eval"]) == [str(finished.run), str(path)]


def test_against_itself_nothing_differs(finished):
    gain = evaluate(finished.run, "--against", finished.run)["gain"]
    assert gain["mean"] == 0
    # of eight tasks none differs: 1 − 0.025^(1/8) = 0.369 of others may, by all that can be earned
    assert (gain["low"], gain["high"]) == pytest.approx((-0.36942, 0.36942), abs=1e-5)


def test_overrides_change_the_evaluation(finished):
    result = evaluate(finished.run, "eval.tasks=4")
    assert result["eval"][str(finished.run)]["tasks"] == 4


def test_for_people_it_prints_the_interval_the_parts_and_the_difference(finished, toml):
    outcome = command("eval", finished.run, "--against", toml())
    assert outcome.code == 0
    first, second, difference = outcome.out.splitlines()
    assert first.startswith(f"{finished.run}: reward ")
    assert "exact" in second
    assert difference.startswith("difference, paired: ")
    assert all(line.split("   ")[0].endswith(" of 8 tasks") for line in outcome.out.splitlines())


def test_different_tasks_have_no_difference(finished, toml):
    outcome = command("eval", finished.run, "--against", toml(env={"seed": 1}))
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert "different tasks" in outcome.err


@pytest.mark.parametrize("words", [["--step", "9"], ["eval.taskz=3"]])
def test_errors_have_exit_code_2(finished, words):
    outcome = command("eval", finished.run, *words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")


def test_a_folder_that_is_no_run(tmp_path):
    outcome = command("eval", tmp_path)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
