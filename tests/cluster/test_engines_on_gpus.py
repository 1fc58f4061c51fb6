"""Engines that Ray places learn whether they have a GPU."""

import pytest

from truing.cluster import launch
from truing.cluster.actor_calls import Member
from truing.config import resolve


@pytest.mark.parametrize(("gpus", "device"), [(2.0, "cuda"), (0.0, "cpu")])
def test_an_engine_starts_on_the_device_of_the_ranks(mini, tmp_path, monkeypatch, gpus, device):
    monkeypatch.setattr(launch, "node_resources", lambda: [{"CPU": 8.0, "GPU": gpus}])
    monkeypatch.setattr(launch, "answers", lambda calls, what, limit: ["http://engine"] * len(calls))
    started = []

    class Actor:
        class start:
            @staticmethod
            def remote(table, device, log):
                started.append(device)
                return "call"

    recipe = resolve(mini(model={"name": "tiny", "device": "auto"}))
    launcher = launch.RayLauncher(recipe, tmp_path, tmp_path, print)
    member = Member("engine 0", Actor())
    assert launcher._start_engines([member], tmp_path / "weights", tmp_path)
    assert started == [device]
