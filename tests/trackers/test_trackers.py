"""Trackers get every number under its name and step; one that fails stops nothing."""

import math
import uuid

import pytest
from runs import HOT, Interrupt, crash_at, not_finite_at

import truing
from truing.config import resolve
from truing.errors import RecipeError, TruingError
from truing.record import RunReader
from truing.trackers import dispatch

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """Nothing leaves the test's folder, and no service is called."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)


MADE = []


class Kept:
    """A backend that remembers, and is remembered in ``made``."""

    def __init__(self, project, out, config):
        self.project, self.numbers, self.closed = project, [], False
        MADE.append(self)

    def log(self, numbers, step):
        self.numbers.append((step, numbers))

    def close(self):
        self.closed = True


@pytest.fixture
def recorded_trackers(monkeypatch):
    MADE.clear()
    monkeypatch.setattr(dispatch, "BACKENDS", {"tensorboard": ("math", Kept)})
    return MADE


def test_a_tracker_gets_each_step_and_each_evaluation(mini, tmp_path, recorded_trackers):
    run = truing.train(mini(track={"to": ["tensorboard"]}, eval={"every": 2}), out=tmp_path / "run").run
    (tracker,) = recorded_trackers
    steps = [(step, n) for step, n in tracker.numbers if "loss/total" in n]
    assert [step for step, _ in steps] == [1, 2, 3, 4, 5, 6]
    for (_, numbers), row in zip(steps, RunReader(run).steps(), strict=True):
        assert {name: numbers[name] for name in row.metrics} == row.metrics
        assert all(math.isfinite(number) for number in numbers.values())
    evaluations = [step for step, numbers in tracker.numbers if "eval/mean" in numbers]
    assert evaluations == [0, 2, 3, 5, 6]  # base, sft@2, after_sft, grpo@2, after_grpo
    assert tracker.closed


@pytest.mark.slow
def test_steps_go_back_with_a_rollback(mini, tmp_path, recorded_trackers, monkeypatch):
    not_finite_at(monkeypatch)
    truing.train(mini(**HOT, track={"to": ["tensorboard"]}), out=tmp_path / "run")
    steps = [step for step, numbers in recorded_trackers[0].numbers if "loss/total" in numbers]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10]  # step 5 of GRPO fails: back to after 2


def test_a_tracker_that_fails_is_reported_once_and_the_run_goes_on(
    mini, tmp_path, recorded_trackers, monkeypatch
):
    def failing(self, numbers, step):
        raise ConnectionError("no network")

    monkeypatch.setattr(Kept, "log", failing)
    run = truing.train(mini(track={"to": ["tensorboard"]}), out=tmp_path / "run").run
    incidents = [e.payload for e in RunReader(run).events() if e.kind == "incident"]
    assert [t["what"] for t in incidents] == ["tensorboard"]
    assert "no network" in incidents[0]["text"]
    assert len(RunReader(run).steps()) == 6


def test_a_run_that_stops_lets_its_trackers_go(mini, tmp_path, recorded_trackers):
    with pytest.raises(Interrupt):
        truing.train(mini(track={"to": ["tensorboard"]}), out=tmp_path / "run", on_event=crash_at("grpo", 1))
    assert recorded_trackers[0].closed


def test_what_is_not_installed_is_said_before_anything_is_loaded(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "BACKENDS", {"wandb": ("no_such_module", Kept)})
    with pytest.raises(RecipeError, match=r"pip install truing\[trackers\]"):
        truing.train(mini(track={"to": ["wandb"]}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RecipeError, match=r"track\.to"):
        resolve(mini(track={"to": ["comet"]}))


def test_a_tracker_that_cannot_be_started_is_an_error(mini, tmp_path, recorded_trackers, monkeypatch):
    def failing(self, *given):
        raise ValueError("no API key")

    monkeypatch.setattr(Kept, "__init__", failing)
    with pytest.raises(TruingError, match="no API key"):
        truing.train(mini(track={"to": ["tensorboard"]}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the same command can be given again


def test_tensorboard_reads_what_was_written(mini, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = truing.train(mini(track={"to": ["tensorboard"]}), out=tmp_path / "run").run
    read = EventAccumulator(str(run / "tensorboard")).Reload()
    rewards = [(event.step, event.value) for event in read.Scalars("reward/mean")]
    rows = [row for row in RunReader(run).steps() if row.stage == "grpo"]
    assert rewards == [(4 + i, pytest.approx(row.metrics["reward/mean"])) for i, row in enumerate(rows)]


def test_mlflow_knows_the_run_again_when_it_is_resumed(mini, tmp_path):
    import mlflow

    table = mini(track={"to": ["mlflow"], "project": "wheels"}, checkpoint_every=1)
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "run", on_event=crash_at("grpo", 1))
    truing.train(table, out=tmp_path / "run", resume=True)
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("wheels").experiment_id])
    history = client.get_metric_history(found.info.run_id, "loss/total")
    assert sorted({metric.step for metric in history}) == [1, 2, 3, 4, 5, 6]
    assert found.info.status == "FINISHED"
    params = found.data.params
    assert (params["grpo.steps"], params["model.name"], params["track.to"]) == ("3", "tiny", "['mlflow']")
    assert "grpo.learning_rate" in params


def test_trackio_holds_the_numbers_of_the_run(mini, tmp_path):
    from trackio.sqlite_storage import SQLiteStorage as storage

    project = f"wheels-{uuid.uuid4().hex[:8]}"
    truing.train(mini(track={"to": ["trackio"], "project": project}), out=tmp_path / "run")
    (name,) = storage.get_runs(project)
    logged = [row["step"] for row in storage.get_logs(project, name) if "loss/total" in row]
    assert name.startswith("run-")
    assert logged == [1, 2, 3, 4, 5, 6]


def test_wandb_keeps_the_run_offline(mini, tmp_path):
    run = truing.train(mini(track={"to": ["wandb"]}), out=tmp_path / "run").run
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    data = file.read_bytes()
    assert b"token_alignment" in data
    assert not [e for e in RunReader(run).events() if e.kind == "incident"]
