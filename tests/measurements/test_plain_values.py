"""Values of the critic by a plain forward, and the value loss's own gradient, in runs of PPO."""

import pytest

import truing
from truing.doctor.rules import opt006, val004
from truing.models.critic import Critic
from truing.record import RunReader
from truing.trainer.preflight import random_reward

PPO = {"steps": 3, "prompts_per_step": 8, "learning_rate": 1e-3}


@pytest.fixture
def facts(mini, tmp_path):
    """The facts of the last step of PPO, with a critic that has learned."""

    def train(**ppo):
        table = mini(
            stages=["ppo"],
            ppo=PPO | ppo,
            doctor={"budget": 1.0, "stop": False},
            sampling={"max_new_tokens": 3},
        )
        run = truing.train(table, rewards=[random_reward], out=tmp_path / "run", on_event=lambda *_: None).run
        return [row.facts for row in RunReader(run).steps()][-1]

    return train


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_recorded_values_are_those_of_a_plain_forward_also_after_the_end(critic, facts):
    found = facts(critic=critic)
    values, gradient = found["critic_values"], found["gradient"]["values"]
    assert values["tokens"] > 0
    assert values["cut"] > 0  # a policy that is not trained does not stop
    assert values["scale"] > 0
    assert max(values["largest"], values["bootstrap"]) < 1e-5 * values["scale"]
    assert gradient["norm"] > 0
    assert gradient["difference"] < 1e-4 * gradient["norm"]


def test_a_gradient_that_does_not_reach_the_trunk_differs(facts, monkeypatch):
    values = Critic.values
    monkeypatch.setattr(
        Critic,
        "values",
        lambda self, states, *args, **options: values(self, states.detach(), *args, **options),
    )
    gradient = facts()["gradient"]["values"]
    assert gradient["trainer"] < gradient["norm"]
    assert opt006.differ(gradient)


def test_both_kinds_of_values_are_claimed():
    (end,), (before,) = (list(val004.judge(step())) for step in (val004.example, val004.of_next_state))
    assert end.what.startswith("the value after a truncated end")
    assert before.what.startswith("values are up to 0.2")
