"""Calls in threads: each has its own result and time limit."""

import decimal
import sys
import threading
import time
import traceback
from itertools import count
from types import SimpleNamespace

import pytest

from truing.errors import RewardError
from truing.rollouts.workers import thread_workers
from truing.rollouts.workers.calls import run_all
from truing.rollouts.workers.thread_workers import MAX_WORKERS, ThreadWorkers, WorkerPool
from truing.types.rollout import Rollout, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status


def run_in_threads(calls, timeout):
    return run_all(WorkerPool(timeout), calls)


def values(results):
    return [result.value for result in results]


def test_results_are_in_the_order_of_their_calls():
    assert values(run_in_threads([lambda i=i: i * i for i in range(100)], 10.0)) == [
        i * i for i in range(100)
    ]
    assert run_in_threads([], 10.0) == []


def test_calls_that_end_at_once_share_a_few_threads():
    names = set()
    run_in_threads([lambda: names.add(threading.current_thread().name)] * 200, 10.0)
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

    run_in_threads([lambda i=i: wait(i) for i in range(2 * MAX_WORKERS)], 10.0)
    assert max(most) == MAX_WORKERS


def test_threads_that_come_late_make_no_call_too_many(monkeypatch):
    """A busy machine runs a new thread only after others were started."""
    pool, late, at_work, most = WorkerPool(10.0, workers=2), [], set(), []

    def wait(i):
        at_work.add(i)
        most.append(len(at_work))
        time.sleep(0.1)
        at_work.remove(i)

    for i in range(6):
        pool.submit(i, lambda i=i: wait(i))
    monkeypatch.setattr("truing.rollouts.workers.thread_workers.GROW_AFTER", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda thread: late.append(thread))
        for _ in range(5):
            pool.grow()
    for thread in late:
        thread.start()
    results = {}
    while pool.unfinished:
        results |= pool.wait()
    assert len(late) == 5
    assert len(results) == 6
    assert max(most) == 2


def test_a_hanging_call_uses_only_its_own_time_limit():
    never = threading.Event()
    calls = [never.wait if i % 2 else lambda: time.sleep(0.05) or "here" for i in range(2 * MAX_WORKERS)]
    results = run_in_threads(calls, 1.0)
    assert values(results[::2]) == ["here"] * MAX_WORKERS
    assert {result.error for result in results[1::2]} == {"no result within 1 s"}
    never.set()


def test_a_call_that_ends_too_late_changes_nothing_and_begins_no_other():
    late, calls = threading.Event(), []
    results = run_in_threads([late.wait], 0.1)
    late.set()
    time.sleep(0.1)
    assert results[0].value is None
    run_in_threads([lambda: calls.append(1)], 1.0)
    assert calls == [1]


@pytest.mark.parametrize(("stop", "name"), [(sys.exit, "SystemExit"), (lambda: 1 / 0, "ZeroDivisionError")])
def test_an_exception_is_the_result_of_its_call(stop, name):
    failed, fine = run_in_threads([stop, lambda: 1], 10.0)
    assert fine.value == 1
    assert failed.value is None
    assert name in failed.error


def test_what_a_call_sets_in_its_context_is_gone_before_the_next():
    def third(digits):
        if digits:
            decimal.getcontext().prec = digits
        return str(decimal.Decimal(1) / 3)

    coarse, fine = run_in_threads([lambda: third(3), lambda: third(None)], 10.0)
    assert coarse.value == "0.333"
    assert len(fine.value) > 20


def test_an_interrupt_lets_no_further_call_begin(monkeypatch):
    started, gate, grow = [], threading.Event(), WorkerPool.grow

    def interrupted(self):
        if started:
            raise KeyboardInterrupt
        return grow(self)

    monkeypatch.setattr(WorkerPool, "grow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_threads([lambda: started.append(1) or gate.wait()] * 50, 10.0)
    gate.set()
    time.sleep(0.1)
    assert 1 <= len(started) < 50


def test_an_endless_generator_ends_when_it_is_given_up():
    made = count()
    [result] = run_in_threads([lambda: max(each for each in made)], 0.1)
    assert result.error == "no result within 0.1 s"
    time.sleep(0.2)
    after = next(made)
    time.sleep(0.05)
    assert next(made) == after + 1


def test_a_reward_without_end_is_an_error_with_its_line_and_a_remedy(monkeypatch):
    monkeypatch.setattr(thread_workers, "MAX_TIMEOUTS", 2.0)

    def endless(rollout, task):
        while True:
            pass

    env = SimpleNamespace(rewards={"endless": (endless, 1.0)})
    task = Task("t1", "family", ({"role": "user", "content": "?"},), "answer")
    rollout = Rollout("r", "g", task, (), "", Status.DONE, SamplingParams())
    with pytest.raises(
        RewardError, match=r"(?s)task 't1' does not return.*0.1 s.*episode.processes"
    ) as caught:
        ThreadWorkers(env, 0.1).grade(rollout)
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "endless"
