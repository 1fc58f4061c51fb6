"""Where the time of a run went."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from truing.cli import app
from truing.cli.profile import chart, mean_seconds
from truing.clock import PHASES
from truing.record import RunReader

SECONDS = [
    ("sft", {"forward": 1.0, "backward": 3.0}),
    ("grpo", {"decode": 6.0, "forward": 1.0, "other": 1.0}),
    ("grpo", {"decode": 2.0, "forward": 1.0, "other": 1.0}),
]


@pytest.fixture
def run(monkeypatch, tmp_path):
    steps = [SimpleNamespace(stage=stage, seconds=seconds) for stage, seconds in SECONDS]
    monkeypatch.setattr(RunReader, "__init__", lambda self, path: None)
    monkeypatch.setattr(RunReader, "steps", lambda self: steps)
    return str(tmp_path)


def test_seconds_are_means_over_the_steps_of_a_stage(run):
    found = json.loads(CliRunner().invoke(app, ["profile", run, "--json"]).stdout)
    assert found == {
        "sft": {"steps": 1, "seconds": {"forward": 1.0, "backward": 3.0}},
        "grpo": {"steps": 2, "seconds": {"decode": 4.0, "forward": 1.0, "other": 1.0}},
    }


def test_the_chart_shows_each_phase_by_its_share(run):
    lines = CliRunner().invoke(app, ["profile", run]).stdout.splitlines()
    assert lines[0] == "sft: 4.000 s a step, 1 steps"
    assert "25.0%" in lines[1]
    assert lines[1].count("█") * 3 == lines[2].count("█") == 18
    assert lines[2].endswith(PHASES["backward"])


def test_what_another_version_counted_is_in_the_whole():
    assert mean_seconds([{"sample": 5.0, "forward": 1.0}]) == {"forward": 1.0, "sample": 5.0}
    assert next(chart("grpo", 1, {"forward": 1.0, "sample": 5.0})).startswith("grpo: 6.000 s")


def test_a_phase_too_short_to_see_still_has_its_line():
    assert "0.0%" in list(chart("grpo", 1, {"world": 1e-6, "other": 1.0}))[1]
