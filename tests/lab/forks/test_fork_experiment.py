"""`truing why RUN --experiment` on real runs."""

import json

import pytest
from command import truing
from runs import MINI

import truing as package
from truing.lab.forks.plan import PLAN
from truing.record import RunReader
from truing.trainer.preflight import random_reward


def trained(out, **given):
    table = {**MINI, "checkpoint_every": 2, "grpo": {**MINI["grpo"], "steps": 4}, "stages": ["grpo"]}
    package.train(table, out=out, on_event=lambda *_: None, **given)
    return out


@pytest.mark.integration
def test_forks_are_trained_in_pairs_and_a_repeated_command_goes_on(tmp_path):
    run = trained(tmp_path / "run")
    before = RunReader(run).run_json()
    first = truing("why", run, "--experiment", "--minutes", "0", "--steps", "2", "--json")
    assert first.code == 0, first.err
    plan = json.loads((tmp_path / "run-experiment" / PLAN).read_text())
    assert (plan["stage"], plan["at"], plan["steps"]) == ("grpo", 4, 2)
    assert json.loads(first.out)["arms"][0]["differences"] == []
    assert "up to 0 pairs in 0 minutes" in first.err

    again = truing("why", run, "--experiment", "--minutes", "0.2", "--steps", "9", "--jobs", "2", "--json")
    facts = json.loads(again.out)
    assert facts["steps"] == 2  # as registered
    assert all(len(arm["differences"]) >= 1 for arm in facts["arms"])
    forks = sorted(path.name for path in (tmp_path / "run-experiment").glob("arm*-pair1"))
    assert forks == [f"arm{i}-pair1" for i in range(1 + len(facts["arms"]))]
    rewards = []
    for name in forks[:2]:
        reader = RunReader(tmp_path / "run-experiment" / name)
        assert reader.run_json()["parent"]["step"] == 4
        assert [row.step for row in reader.steps()] == list(range(6))
        rewards.append(reader.events()[-1].payload["estimates"]["after_grpo"]["mean"])
    assert facts["arms"][0]["differences"][0] == pytest.approx(rewards[1] - rewards[0])
    assert RunReader(run).run_json() == before


def test_a_log_is_refused(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": i, "reward": 0.5}) for i in range(9)))
    outcome = truing("why", log, "--experiment")
    assert outcome.code == 2
    assert "an experiment forks a run of Truing" in outcome.err


@pytest.mark.integration
def test_a_run_with_rewards_from_python_is_forked_in_python(tmp_path, capsys):
    run = trained(tmp_path / "run", rewards=[random_reward])
    refused = truing("why", run, "--experiment")
    assert refused.code == 2
    assert f'truing.experiment("{run}", rewards=…' in refused.err

    started = package.experiment(run, rewards=[random_reward], minutes=0, steps=1)
    assert [each.differences for each in started] == [()] * len(started)
    assert "not decided" in capsys.readouterr().out
    results = package.experiment(run, rewards=[random_reward], minutes=0.2, steps=1)
    assert all(len(each.differences) >= 1 for each in results)
    assert not list((tmp_path / "run-experiment").glob("*/output.txt"))  # no process of its own
