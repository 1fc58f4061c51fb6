"""The record has why a run stopped, whatever stopped it; if it cannot be written, the error has both."""

import errno

import pytest
from command import truing as command
from runs import Interrupt, assert_same_run, crash_at

import truing
from dev.faults.planted import FAULTS
from truing.errors import ProvenError, RecordError, RewardError, TruingError
from truing.record import RunReader
from truing.trainer.exit_status import CHARACTERS, LINES, exit_facts
from truing.trainer.preflight import random_reward
from truing.utils.jsonl import JsonlWriter

pytestmark = pytest.mark.integration


def stops(run):
    return [event.payload for event in RunReader(run).events() if event.kind == "stopped"]


def stopped_by(error, mini, out):
    """A run that an error ends after its first step."""

    def watch(kind, facts):
        entries.append((kind, facts))
        if kind == "step":
            raise error

    entries = []
    with pytest.raises(type(error)):
        truing.train(mini(), out=out, on_event=watch)
    return entries[-1]


def test_an_unexpected_error_is_on_record_with_its_last_lines(mini, tmp_path):
    kind, facts = stopped_by(ValueError("a tensor of 3 × 4"), mini, tmp_path / "run")
    (stop,) = stops(tmp_path / "run")
    assert (kind, facts) == ("stopped", {"run": str(tmp_path / "run"), **stop})
    assert {name: stop[name] for name in ("reason", "resumable", "error", "message")} == {
        "reason": "ValueError",
        "resumable": True,
        "error": "ValueError",
        "message": "a tensor of 3 × 4",
    }
    assert stop["traceback"].endswith("ValueError: a tensor of 3 × 4")
    assert "raise error" in stop["traceback"]


def test_what_truing_raises_says_what_to_do_and_has_no_traceback(mini, tmp_path):
    error = TruingError("no room", got=3, expected=4, remedy="make some")
    stopped_by(error, mini, tmp_path / "run")
    (stop,) = stops(tmp_path / "run")
    assert (stop["reason"], stop["error"], stop["traceback"]) == ("no room", "TruingError", "")
    assert stop["message"] == str(error)
    assert "remedy: make some" in stop["message"]


def test_ctrl_c_is_no_fault(mini, tmp_path):
    stopped_by(KeyboardInterrupt(), mini, tmp_path / "run")
    (stop,) = stops(tmp_path / "run")
    assert (stop["reason"], stop["message"], stop["traceback"]) == ("KeyboardInterrupt", "", "")
    assert stop["resumable"]


def test_the_traceback_of_a_users_reward_function_is_kept(mini, tmp_path):
    def broken(rollout, task):
        return 1 / (0 if (tmp_path / "run").exists() else 1)  # not in the call before the run

    with pytest.raises(RewardError):
        truing.train(mini(), rewards=[broken], out=tmp_path / "run")
    (stop,) = stops(tmp_path / "run")
    assert stop["error"] == "RewardError"
    assert "in broken" in stop["traceback"]
    assert stop["traceback"].endswith("ZeroDivisionError: division by zero")


def test_only_the_end_of_what_is_long_is_kept():
    wide, high = (exit_facts(ValueError(filling + "the end")) for filling in ("x" * 9999, "\n" * 100))
    assert len(wide["message"]) == len(wide["traceback"]) == CHARACTERS
    assert wide["message"] == "x" * CHARACTERS  # of a message, how it begins
    assert wide["traceback"].endswith("the end")
    assert len(high["traceback"].splitlines()) == LINES
    assert high["traceback"].endswith("the end")


def test_what_is_proven_is_named_and_its_findings_are_on_record_before_it(mini, tmp_path):
    with FAULTS["mask-shifted"].plant(), pytest.raises(ProvenError):
        truing.train(mini(), rewards=[random_reward], out=tmp_path / "run", on_event=lambda *_: None)
    *_, found, stop = RunReader(tmp_path / "run").events()
    assert [event.kind for event in (found, stop)] == ["finding", "stopped"]
    assert stop.payload["error"] == "ProvenError"
    assert found.payload["code"] in stop.payload["reason"]


def test_a_run_that_goes_on_says_so_and_is_the_same_as_one_that_never_stopped(mini, tmp_path):
    table = mini(checkpoint_every=1)
    whole = truing.train(table, out=tmp_path / "whole", on_event=lambda *_: None).run
    for place in (("sft", 0), ("grpo", 1)):  # before there is any checkpoint, and after
        out = tmp_path / place[0]
        with pytest.raises(Interrupt):
            truing.train(table, out=out, on_event=crash_at(*place))
        truing.train(table, out=out, resume=True, on_event=lambda *_: None)
        kinds = [event.kind for event in RunReader(out).events() if event.kind in ("stopped", "resumed")]
        assert kinds == ["stopped", "resumed"]
        assert_same_run(whole, out)
    assert not stops(whole)
    assert command("compare", whole, tmp_path / "grpo").code == 0
    assert command("scorecard", tmp_path / "grpo").out == command("scorecard", whole).out


def test_where_the_disk_is_full_the_error_is_the_first_one_and_says_so(mini, tmp_path, monkeypatch):
    real, full = JsonlWriter.append, False

    def append(log, value):
        if full:
            raise RecordError(
                "cannot write events.jsonl", got=OSError(errno.ENOSPC, "No space left on device")
            )
        real(log, value)

    def watch(kind, facts):
        nonlocal full
        entries.append(kind)
        if kind == "step":
            full = True
            raise Interrupt

    entries = []
    monkeypatch.setattr(JsonlWriter, "append", append)
    table = mini(alerts={"when": ["lr < 1"], "on": ["stopped"], "command": "exit 3"})  # it fails, untold
    with pytest.raises(Interrupt) as error:
        truing.train(table, out=tmp_path / "run", on_event=watch)
    assert entries[-1] == "stopped"
    assert ["No space left" in note for note in error.value.__notes__] == [True, True]
    assert stops(tmp_path / "run") == []


def test_the_notes_of_an_error_are_shown(monkeypatch):
    def fails():
        error = TruingError("the sampler is gone")
        error.add_note("and how it ended could not be told")
        raise error

    monkeypatch.setattr("truing.cli.app", fails)
    outcome = command()
    assert outcome.code == 2
    assert outcome.err.splitlines() == ["error: the sampler is gone", "and how it ended could not be told"]
