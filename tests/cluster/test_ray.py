"""What Ray cannot place is refused; what is lost is named and replaced; nothing is left behind."""

import re
import signal
from pathlib import Path

import psutil
import pytest
from ray_cluster import fake_vllm_python, is_empty
from runs import assert_same_run
from training_process import TrainingProcess, losses, write_recipe

from truing.cluster.launch import RayLauncher
from truing.cluster.rank_actor import RankActor
from truing.config import load_recipe
from truing.errors import RecipeError
from truing.record import RunReader

pytestmark = pytest.mark.integration


@pytest.fixture
def launcher(tmp_path):
    def make(**changes):
        recipe = load_recipe(write_recipe(tmp_path, **changes))
        return RayLauncher(recipe, tmp_path, tmp_path / "run.ranks", print)

    return make


def servers():
    """The fake servers that run on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "truing_vllm_serve" in (process.info["cmdline"] or ()):
            found.append(process)
    return found


@pytest.mark.slow
def test_an_engine_that_ray_places_is_killed_started_again_and_proven(train, tmp_path):
    before = {process.pid for process in servers()}
    python = str(fake_vllm_python(tmp_path))
    training = train(
        trainer={"ranks": 1}, engine={"kind": "vllm", "count": 1, "python": python}, stages=["grpo"]
    )
    training.wait_for_steps(1)
    (server,) = (process for process in servers() if process.pid not in before)
    server.kill()
    assert training.finish() == 0, training.printed
    assert "ended with exit code -9; it starts again" in training.printed
    incidents = [e.payload["text"] for e in RunReader(training.run).events() if e.kind == "incident"]
    assert any("it runs again" in text for text in incidents), incidents
    recipe = load_recipe(training.run / "recipe.toml")
    assert (recipe.engine.count, recipe.engine.servers) == (1, ())
    assert {process.pid for process in servers()} <= before
    assert is_empty()


def test_a_cluster_that_is_too_small_is_refused(address, launcher):
    with pytest.raises(RecipeError, match="too few CPUs") as error:
        launcher(trainer={"ranks": 4}, model={"name": "tiny", "threads": 2}).launch([], is_restart=False)
    assert error.value.got.startswith("4 CPU")
    assert error.value.expected == "8 CPU: 4 × (2 CPU)"
    with pytest.raises(RecipeError, match="too few GPUs"):
        launcher(model={"name": "tiny", "device": "cuda"}).launch([], is_restart=False)
    assert is_empty()


def test_a_cluster_that_other_work_holds_is_refused_within_a_limit(address, launcher, monkeypatch):
    import ray

    monkeypatch.setattr("truing.cluster.launch.PLACE_SECONDS", 1.0)
    holder = ray.remote(RankActor).options(num_cpus=3).remote()
    ray.get(holder.place.remote())
    with pytest.raises(RecipeError, match="had no room within 1 s") as error:
        launcher().launch([], is_restart=False)
    assert (error.value.got, error.value.expected) == ("free: 1 CPU", "2 CPU")
    ray.kill(holder)


def test_a_folder_that_a_node_does_not_see_is_refused(address, launcher, tmp_path):
    hidden = RayLauncher(launcher().recipe, Path("/nowhere"), tmp_path / "run.ranks", print)
    with pytest.raises(RecipeError, match="not all nodes see the folders") as error:
        hidden.launch([], is_restart=False)
    assert error.value.got == "rank 0 on node {0}: /nowhere; rank 1 on node {0}: /nowhere".format(
        address.rpartition(":")[0]
    )


def test_what_a_node_does_not_see(tmp_path):
    token, actor = tmp_path / "token", RankActor()
    token.write_text("ours")
    assert actor.missing(str(tmp_path), token, "ours") == ""
    assert actor.missing(str(tmp_path), token, "of another disk") == str(tmp_path)
    assert actor.missing(str(tmp_path / "no"), token, "ours") == str(tmp_path / "no")
    assert actor.missing(str(tmp_path), tmp_path / "no" / "token", "ours") == str(tmp_path / "no")


@pytest.mark.slow
def test_an_error_that_a_rank_raises_ends_the_run(train):
    training = train(model={"name": "no-such-model"})
    assert training.finish() == 2
    assert "ended with exit code 2" in training.printed
    assert "no-such-model" in training.printed
    assert "Restart" not in training.printed
    assert is_empty()


@pytest.mark.slow
def test_ctrl_c_saves_and_leaves_nothing_behind(train, undisturbed):
    training = train()
    training.wait_for_steps(2)
    training.process.send_signal(signal.SIGINT)
    assert training.finish() == 130, training.printed
    assert "Restart" not in training.printed
    stopped = [e.payload for e in RunReader(training.run).events() if e.kind == "stopped"]
    assert [facts["error"] for facts in stopped] == ["KeyboardInterrupt"]
    assert is_empty()
    resumed = TrainingProcess(training.run / "recipe.toml", training.run, "--resume")
    assert resumed.finish() == 0, resumed.printed
    assert_same_run(undisturbed, training.run, audits=False)


@pytest.mark.slow
def test_the_ray_process_of_a_rank_is_killed(train, undisturbed):
    """As Ray does if a node has no memory left; the rank ends with it."""
    training = train()
    training.wait_for_steps(2)
    rank = training.rank(1)
    rank.parent().kill()
    assert training.finish() == 0, training.printed
    assert not rank.is_running()
    (said,) = losses(training.printed)
    assert "was lost: its Ray process has ended" in said
    assert_same_run(undisturbed, training.run, audits=False)
    assert is_empty()


@pytest.mark.slow
def test_the_ray_process_of_an_engine_is_killed(train, tmp_path):
    before = {process.pid for process in servers()}
    python = str(fake_vllm_python(tmp_path))
    training = train(engine={"kind": "vllm", "count": 2, "python": python}, stages=["grpo"])
    training.wait_for_steps(1)
    new = [process for process in servers() if process.pid not in before]
    assert len(new) == 2
    new[0].parent().kill()
    assert training.finish() == 0, training.printed
    assert re.search(r"^engine \d on node .* was lost: its Ray process has ended", training.printed, re.M)
    assert "Restart 1 of 3" in training.printed
    assert {process.pid for process in servers()} <= before
    assert is_empty()


@pytest.mark.slow
def test_a_killed_driver_leaves_no_rank_behind(train):
    training = train()
    training.wait_for_steps(1)
    ranks = [training.rank(number) for number in range(2)]
    training.process.kill()
    _, left = psutil.wait_procs(ranks, 60)
    assert left == []
    assert is_empty()
