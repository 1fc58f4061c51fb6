"""Servers that sleep while the trainer works: weights are loaded and proven again whenever they wake."""

import pytest

import truing
from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.threads import fake_vllm
from truing.errors import EngineError, PublicationError, RecipeError
from truing.record import RunReader

pytestmark = pytest.mark.integration

SLEEPING = {
    "engine": {"kind": "vllm", "timeout": 30.0, "sleep": True},
    "model": {"name": "tiny", "threads": 1, "device": "cpu"},
}


def train(table, out):
    with fake_vllm():
        truing.train(table, out=out, on_event=lambda kind, facts: None)
    return [row for row in RunReader(out).steps() if row.stage == "grpo"]


@pytest.mark.parametrize("changes", [{"lora": {"rank": 4}}, {}], ids=["lora", "full"])
def test_the_server_sleeps_while_the_trainer_works(mini, tmp_path, monkeypatch, changes):
    calls = []
    for name in ("sleep", "wake_up"):
        real = getattr(FakeServer, name)
        noted = lambda self, body, name=name, real=real: calls.append(name) or real(self, body)  # noqa: E731
        monkeypatch.setattr(FakeServer, name, noted)
    steps = train(mini(**SLEEPING, **changes), tmp_path / "run")
    assert [row.facts["publication"]["version"] for row in steps] == [3, 4, 5]
    # three evaluations and three steps; what was asleep is woken before it is used again
    assert calls == ["sleep", "wake_up"] * 5 + ["sleep"]


def test_weights_that_a_sleeping_server_did_not_take_are_proven_stale(mini, tmp_path, monkeypatch):
    real, slept = FakeServer.load_adapter, []

    def only_before_the_first_sleep(self, body):
        if slept:  # the answer says that it was loaded
            self.adapters[body["lora_name"]] = body["lora_path"]
            return self.update_version({"new_version": self.version})
        return real(self, body)

    monkeypatch.setattr(FakeServer, "load_adapter", only_before_the_first_sleep)
    fall_asleep = FakeServer.sleep
    monkeypatch.setattr(FakeServer, "sleep", lambda self, body: slept.append(1) or fall_asleep(self, body))
    with pytest.raises(PublicationError, match="version 0"):
        train(mini(**SLEEPING, lora={"rank": 4}), tmp_path / "run")


def test_a_server_that_does_not_wake_up_ends_the_run(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeServer, "wake_up", FakeServer.sleep)
    with pytest.raises(EngineError, match="does not wake up"):
        train(mini(**SLEEPING, lora={"rank": 4}), tmp_path / "run")


def test_what_sleeps_samples_nothing_ahead(mini):
    table = mini(engine={"kind": "vllm", "sleep": True, "ahead": 1}, correction={"method": "mask"})
    with pytest.raises(RecipeError, match="samples nothing ahead"):
        truing.train(table)
