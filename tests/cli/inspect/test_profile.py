"""`truing profile`: the time of a run by phase, and its peak memory."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from truing.cli import app
from truing.cli.inspect.profile import chart_lines, mean_seconds, stage_profile
from truing.record import RunReader
from truing.utils.phase_clock import PHASES

STEPS = [
    ("sft", {"forward": 1.0, "backward": 3.0}, {}),
    ("grpo", {"decode": 6.0, "forward": 1.0, "other": 1.0}, {"memory/peak": 2.5, "memory/predicted": 2.0}),
    ("grpo", {"decode": 2.0, "forward": 1.0, "other": 1.0}, {"memory/peak": 3.0}),
]


def step_row(stage, seconds, metrics=()):
    return SimpleNamespace(stage=stage, seconds=seconds, metrics=dict(metrics))


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(RunReader, "__init__", lambda self, path: None)
    monkeypatch.setattr(RunReader, "check_complete", lambda self: None)
    monkeypatch.setattr(RunReader, "steps", lambda self: [step_row(*step) for step in STEPS])
    return str(tmp_path)


def test_seconds_are_means_over_the_steps_of_a_stage_and_memory_is_the_peak(run):
    output = json.loads(CliRunner().invoke(app, ["profile", run, "--json"]).stdout)
    sft = {"steps": 1, "step": 4.0, "seconds": {"forward": 1.0, "backward": 3.0}, "memory_gb": {}}
    grpo = {
        "steps": 2,
        "step": 6.0,
        "seconds": {"decode": 4.0, "forward": 1.0, "other": 1.0},
        "memory_gb": {"peak": 3.0, "predicted": 2.0},
    }
    assert output == {"sft": sft, "grpo": grpo}


def test_the_chart_shows_each_phase_by_its_share(run):
    lines = CliRunner().invoke(app, ["profile", run]).stdout.splitlines()
    assert lines[0] == "sft: 4.000 s a step, 1 step"
    assert "25.0%" in lines[1]
    assert lines[1].count("█") * 3 == lines[2].count("█") == 18
    assert lines[2].endswith(PHASES["backward"])
    assert lines[3].startswith("grpo")  # no line for memory that is not recorded
    assert "peak 3.00 GB, predicted for forward and backward 2.00 GB" in lines[7]
    assert "truing explain speed" in lines[-1]


def test_a_phase_of_another_version_counts_in_the_sum():
    assert mean_seconds([{"sample": 5.0, "forward": 1.0}]) == {"forward": 1.0, "sample": 5.0}
    assert stage_profile([step_row("grpo", {"forward": 1.0, "sample": 5.0})])["step"] == 6.0


def test_a_phase_too_short_to_see_still_has_its_line():
    assert (
        "0.0%"
        in list(chart_lines("grpo", stage_profile([step_row("grpo", {"environment": 1e-6, "other": 1.0})])))[
            1
        ]
    )
