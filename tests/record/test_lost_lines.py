"""A line that steps.jsonl has lost is reported by every command that reads the run."""

import json

import pytest
from command import truing

from truing.board.queries import Board


@pytest.fixture
def run(trained_run):
    """A run that lost the line of its second update of GRPO."""
    run = trained_run("run").run
    lines = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if (json.loads(line)["stage"], json.loads(line)["step"]) != ("grpo", 1)]
    assert len(kept) == len(lines) - 1
    (run / "steps.jsonl").write_text("".join(kept))
    return run


@pytest.mark.parametrize(
    "verb", ["check", "why", "tail", "scorecard", "tokens", "profile", "report", "compare"]
)
def test_commands_report_it(verb, run):
    outcome = truing(verb, run, *([run] if verb == "compare" else []))
    assert "steps.jsonl" in outcome.err + outcome.out, outcome.out


def test_the_board_reports_it(run):
    board = Board(run.parent)
    assert "steps.jsonl lacks 1 update of grpo" in json.dumps(board.answer("run", {"run": "run"}))
