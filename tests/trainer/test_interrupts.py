"""Ctrl-C waits until a step is complete, but interrupts sampling at once."""

import os
import signal
import threading
import tomllib

import pytest
from labs import RECIPE

import truing
from truing.learner.checkpoint import find_newest
from truing.record import RunReader
from truing.terminal.reader import RunWatcher
from truing.trainer.interrupts import DeferredInterrupt


@pytest.fixture(autouse=True)
def listening():
    """As at a terminal: behind a script Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_waits_and_the_second_does_not():
    interrupt = DeferredInterrupt()
    with interrupt:
        ctrl_c()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        interrupt.raise_if_requested()


def test_what_can_be_left_is_left_at_once():
    interrupt = DeferredInterrupt()
    with interrupt, pytest.raises(KeyboardInterrupt), interrupt.interruptible():
        ctrl_c()
    assert not interrupt.requested
    interrupt.raise_if_requested()


def test_outside_it_everything_is_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    with DeferredInterrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt = DeferredInterrupt()
        with interrupt:
            ctrl_c()
        interrupt.raise_if_requested()
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_takes_no_signals():
    failed = []

    def work():
        try:
            with DeferredInterrupt():
                pass
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed


@pytest.fixture
def four_steps():
    """A recipe of four steps without checkpoints between them."""
    recipe = tomllib.loads(RECIPE)
    recipe["grpo"]["steps"] = 4
    return recipe


def sigterm_at(event, number):
    """Send SIGTERM to this process at the n-th event of a kind."""
    seen = []

    def on_event(kind, facts):
        seen.append(kind)
        if kind == event and seen.count(kind) == number:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_event


@pytest.mark.integration
@pytest.mark.parametrize(("event", "number", "step"), [("step", 2, 2), ("evaluating", 1, 4)])
def test_sigterm_saves_every_step_and_ends_with_143(four_steps, event, number, step, tmp_path):
    with pytest.raises(SystemExit) as end:
        truing.train(four_steps, out=tmp_path / "run", on_event=sigterm_at(event, number))
    assert end.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert find_newest(tmp_path / "run" / "checkpoints").name == f"grpo-00000{step}"
    summary = RunWatcher(tmp_path / "run").read().summary
    assert (summary.state, summary.why) == ("stopped", "SIGTERM stopped it")
    truing.train(four_steps, out=tmp_path / "run", resume=True, on_event=lambda kind, facts: None)
    assert len(RunReader(tmp_path / "run").steps()) == 4


@pytest.mark.integration
def test_a_handler_of_the_callers_for_sigterm_stays(four_steps, tmp_path):
    received = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        truing.train(four_steps, out=tmp_path / "run", on_event=sigterm_at("step", 1))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert received == [signal.SIGTERM]


@pytest.mark.integration
def test_ctrl_c_in_an_evaluation_midway_loses_no_step(tmp_path):
    recipe = tomllib.loads(RECIPE)
    recipe["grpo"]["steps"] = 4
    recipe["eval"] |= {"every": 2, "tasks": 2}

    def interrupt(kind, facts):
        if kind == "evaluating" and facts["name"] == "grpo@2":
            ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        truing.train(recipe, out=tmp_path / "run", on_event=interrupt)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("grpo-*")] == ["grpo-000002"]
    result = truing.train(recipe, out=tmp_path / "run", resume=True, on_event=lambda kind, facts: None)
    assert list(result.evaluations) == ["grpo@2", "after_grpo"]
    whole = truing.train(recipe, out=tmp_path / "whole", on_event=lambda kind, facts: None)
    assert whole.estimates() == result.estimates()


def test_ctrl_c_while_a_step_is_shown_loses_no_step(tmp_path):
    recipe = tomllib.loads(RECIPE)
    recipe["grpo"]["steps"] = 3

    def interrupt(kind, facts):
        if kind == "step":
            ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        truing.train(recipe, out=tmp_path / "run", on_event=interrupt)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("grpo-*")] == ["grpo-000001"]
