"""A line that steps.jsonl has lost is reported by every command that reads the run."""

import json

import pytest
from command import truing
from recorded import write_steps

from truing.analysis.incremental_reader import IncrementalReader
from truing.board.queries import Board
from truing.errors import RecordError
from truing.record import RunReader, RunWriter


@pytest.fixture
def run(trained_run):
    """A run that lost the line of its second step of GRPO."""
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
    assert "steps.jsonl lacks 1 step of grpo" in json.dumps(board.answer("run", {"run": "run"}))


@pytest.fixture
def two_stages(tmp_path):
    """Two stages of three steps, each with a checkpoint at its end; not compacted."""
    with RunWriter(tmp_path / "two") as writer:
        writer.write_run({})
        for stage in ("sft", "grpo"):
            writer.write_event("stage", stage=stage, steps=3, first_step=0)
            write_steps(writer, range(3), stage)
            writer.write_event("checkpoint", name=f"{stage}-000003", weight_digest="d")
    return tmp_path / "two"


@pytest.mark.parametrize("lost", [[0], [1], [2], [3], [5], [0, 1, 2], [3, 4, 5], [2, 3]])
def test_steps_that_events_know_of_are_missed_wherever_they_were(two_stages, lost):
    RunReader(two_stages).check_complete()
    lines = (two_stages / "steps.jsonl").read_text().splitlines(keepends=True)
    (two_stages / "steps.jsonl").write_text("".join(line for i, line in enumerate(lines) if i not in lost))
    with pytest.raises(RecordError, match=f"{len(lost)} steps? ha"):
        RunReader(two_stages).check_complete()
    live = IncrementalReader(two_stages)
    live.refresh()
    assert all("steps.jsonl lacks" in problem for problem in live.missing_steps)
    assert live.missing_steps


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("rollback", {"stage": "grpo", "step": 2, "to": 1, "reason": "r", "kept": "abandoned/grpo-1"}),
        ("resumed", {"stage": "grpo", "step": 1}),
        ("stage", {"stage": "grpo", "steps": 3, "first_step": 1}),
    ],
)
def test_steps_that_were_undone_are_not_lost(two_stages, kind, facts):
    with RunWriter(two_stages, resume=True) as writer:
        writer.truncate_to("grpo", 1)
        writer.write_event(kind, **facts)
    RunReader(two_stages).check_complete()


def test_a_run_that_started_anew_has_lost_nothing(two_stages):
    with RunWriter(two_stages, resume=True) as writer:
        writer.clear()
        writer.write_event("resumed", stage="sft", step=0)
        writer.write_event("checkpoint", name="elsewhere")
    RunReader(two_stages).check_complete()


@pytest.fixture
def with_events(tmp_path):
    """A run of three steps, with events before and between them."""
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({})
        writer.write_event("stage", stage="grpo", steps=3, first_step=0)
        for step in range(3):
            write_steps(writer, [step])
            writer.write_event("note", text=f"after {step}")
    return tmp_path / "run"


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_events_that_were_cut_are_missed(with_events, kept):
    RunReader(with_events).check_complete()
    lines = (with_events / "events.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 5  # with the one that declares metrics
    (with_events / "events.jsonl").write_text("".join(lines[:kept]))
    with pytest.raises(RecordError, match=r"events\.jsonl is not whole"):
        RunReader(with_events).check_complete()
    live = IncrementalReader(with_events)
    live.refresh()
    assert live.missing_steps[0].startswith(f"events.jsonl lacks {4 - kept} line")


def test_a_resumed_run_counts_the_events_that_are_there(with_events):
    with RunWriter(with_events, resume=True) as writer:
        writer.truncate_to("grpo", 1)
        writer.write_event("resumed", stage="grpo", step=1)
        write_steps(writer, [1])
    assert RunReader(with_events).steps()[-1].events == 6
    RunReader(with_events).check_complete()
