"""Calls in threads: each has its outcome and its own time, whatever the others do."""

import decimal
import sys
import threading
import time

import pytest

from truing.rollouts.env_workers import MAX_WORKERS, WorkerPool, run_in_workers


def values(outcomes):
    return [outcome.value for outcome in outcomes]


def test_outcomes_stand_in_the_order_of_their_calls():
    assert values(run_in_workers([lambda i=i: i * i for i in range(100)], 10.0)) == [
        i * i for i in range(100)
    ]
    assert run_in_workers([], 10.0) == []


def test_calls_that_end_at_once_share_a_few_threads():
    names = set()
    run_in_workers([lambda: names.add(threading.current_thread().name)] * 200, 10.0)
    assert len(names) < 20  # a thread for each call would be 200; a busy machine may need some


def test_calls_that_wait_run_together_and_at_most_so_many():
    at_work, most, lock = set(), [], threading.Lock()

    def wait(i):
        with lock:
            at_work.add(i)
            most.append(len(at_work))
        time.sleep(0.3)
        with lock:
            at_work.remove(i)

    run_in_workers([lambda i=i: wait(i) for i in range(2 * MAX_WORKERS)], 10.0)
    assert max(most) == MAX_WORKERS


def test_what_hangs_loses_its_own_time_and_nobody_elses():
    never = threading.Event()
    calls = [never.wait if i % 2 else lambda: time.sleep(0.05) or "here" for i in range(2 * MAX_WORKERS)]
    outcomes = run_in_workers(calls, 1.0)
    assert values(outcomes[::2]) == ["here"] * MAX_WORKERS
    assert {outcome.error for outcome in outcomes[1::2]} == {"it did not end within 1 s"}
    never.set()


def test_a_call_that_ends_too_late_changes_nothing_and_begins_no_other():
    late, told = threading.Event(), []
    outcomes = run_in_workers([late.wait], 0.1)
    late.set()
    time.sleep(0.1)
    assert outcomes[0].value is None
    run_in_workers([lambda: told.append(1)], 1.0)
    assert told == [1]


@pytest.mark.parametrize(("stop", "told"), [(sys.exit, "SystemExit"), (lambda: 1 / 0, "ZeroDivisionError")])
def test_whatever_a_call_raises_is_its_own_outcome(stop, told):
    failed, fine = run_in_workers([stop, lambda: 1], 10.0)
    assert fine.value == 1
    assert failed.value is None
    assert told in failed.error


def test_what_a_call_sets_in_its_context_is_gone_before_the_next():
    def third(digits):
        if digits:
            decimal.getcontext().prec = digits
        return str(decimal.Decimal(1) / 3)

    coarse, fine = run_in_workers([lambda: third(3), lambda: third(None)], 10.0)
    assert coarse.value == "0.333"
    assert len(fine.value) > 20


def test_an_interrupt_lets_no_further_call_begin(monkeypatch):
    begun, gate, reinforce = [], threading.Event(), WorkerPool.grow

    def interrupted(self, timeout):
        if begun:
            raise KeyboardInterrupt
        return reinforce(self, timeout)

    monkeypatch.setattr(WorkerPool, "grow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_workers([lambda: begun.append(1) or gate.wait()] * 50, 10.0)
    gate.set()
    time.sleep(0.1)
    assert 1 <= len(begun) < 50
