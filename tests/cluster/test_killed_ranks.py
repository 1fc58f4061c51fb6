"""A run of two ranks, of which one is killed, ends with the bits of a run that nothing happened to.

Whether torchrun's launcher or Ray starts them makes no difference either.
"""

import random
import signal
import time

import psutil
import pytest
from ray_cluster import is_empty
from runs import assert_same_run
from training_process import RECIPE, TrainingProcess, losses, resumed, write_recipe

pytestmark = pytest.mark.integration


@pytest.fixture
def start(request, tmp_path):
    """Train with a launcher, in a process of its own."""

    def start(launcher, name="run", words=(), **changes):
        if launcher == "ray":
            words = (*words, "--ray", request.getfixturevalue("address"))
        return TrainingProcess(write_recipe(tmp_path, **changes), tmp_path / name, *words)

    return start


def test_a_rank_of_torchrun_is_killed(start, undisturbed):
    training = start("torchrun")
    training.wait_for_steps(2)
    training.rank(1).send_signal(signal.SIGKILL)
    assert training.finish() == 0, training.printed
    (said,) = losses(training.printed)
    assert said.startswith("rank 1 was ended by SIGKILL. Restart 1 of 3, from checkpoint ")
    assert len(resumed(training.run)) == 1
    assert_same_run(undisturbed, training.run, audits=False)


def test_a_rank_of_ray_is_killed(start, undisturbed):
    training = start("ray")
    training.wait_for_steps(2)
    training.rank(1).send_signal(signal.SIGKILL)
    assert training.finish() == 0, training.printed
    (said,) = losses(training.printed)
    assert said.startswith("rank 1 on node ")
    assert "was ended by SIGKILL. Restart 1 of 3, from checkpoint " in said
    assert len(resumed(training.run)) == 1
    assert_same_run(undisturbed, training.run, audits=False)
    assert "evaluating after_grpo on 4 tasks" in training.printed  # the first rank's
    logs = training.run.with_name("run.ranks")
    assert {path.name for path in logs.iterdir()} == {"start-1", "start-2"}
    assert {path.name for path in (logs / "start-2" / "1").iterdir()} == {"stdout", "stderr"}
    assert is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "ray"])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_killed_at_random_moments_leave_the_same_bits(launcher, seed, start):
    """Two kills a run, at any moment: while ranks start, sample, train, save or evaluate."""
    chance = random.Random(f"{launcher} {seed}")
    longer = {name: {**RECIPE[name], "steps": 6} for name in ("sft", "grpo")}
    training = start(launcher, **longer)
    first = chance.randint(0, 4)
    for number, steps in enumerate((first, first + chance.randint(3, 5)), 1):
        training.wait_for_steps(steps)
        victim = training.rank(chance.randrange(2))
        time.sleep(chance.random() * (3 if steps == 0 else 0.3))
        victim.send_signal(signal.SIGKILL)
        training.wait_for_restart(number)
    assert training.finish() == 0, training.printed
    assert len(losses(training.printed)) == 2
    alone = start("torchrun", "alone", **longer)
    assert alone.finish() == 0, alone.printed
    assert_same_run(alone.run, training.run, audits=False)


@pytest.mark.slow
def test_the_launcher_is_killed(start, undisturbed):
    """Its ranks end too: they would train on beside a run that resumes."""
    training = start("torchrun")
    training.wait_for_steps(2)
    ranks = [training.rank(number) for number in range(2)]
    training.process.kill()
    assert not psutil.wait_procs(ranks, 60)[1]
    training.process.wait()
    again = start("torchrun", training.run.name, words=("--resume",))
    assert again.finish() == 0, again.printed
    assert len(resumed(training.run)) == 1
    assert_same_run(undisturbed, training.run, audits=False)
