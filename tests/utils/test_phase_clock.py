"""Seconds by phase: each second in the innermost phase, and none of them twice."""

import pytest

from truing.utils import phase_clock as clock_module
from truing.utils.phase_clock import PhaseClock, phase


@pytest.fixture
def now(monkeypatch):
    """A clock that a test advances."""
    time = [0.0]
    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: time[0])
    return time


def test_an_inner_phase_is_not_counted_in_its_outer_one(now):
    clock = PhaseClock()
    with clock.running():
        now[0] += 1
        with phase("environment"):
            now[0] += 2
            with phase("decode"):
                now[0] += 4
            now[0] += 8
        now[0] += 16
    assert clock.pop_seconds() == {"other": 17, "environment": 10, "decode": 4}


def test_phases_within_doctor_count_as_doctor(now):
    clock = PhaseClock()
    with clock.running(), phase("doctor"):
        now[0] += 1
        with phase("forward"):
            now[0] += 2
    with clock.running(), phase("forward"):
        now[0] += 4
    assert clock.pop_seconds() == {"other": 0, "doctor": 3, "forward": 4}


def test_popped_seconds_are_not_counted_again(now):
    clock = PhaseClock()
    with clock.running(), phase("record"):
        now[0] += 1
        assert clock.pop_seconds() == {"record": 1, "other": 0}
        now[0] += 2
    now[0] += 4  # nothing runs
    with clock.running():
        now[0] += 8
    assert clock.pop_seconds() == {"record": 2, "other": 8}


def test_a_phase_that_fails_is_counted_and_closed(now):
    clock = PhaseClock()
    with clock.running():
        with pytest.raises(ZeroDivisionError), phase("reward"):
            now[0] += 1 / 0
        now[0] += 2
    assert clock.pop_seconds() == {"reward": 0, "other": 2}


def test_a_device_is_waited_for_where_a_phase_ends(now):
    def settle():
        now[0] += 1  # what the device had still to do

    clock = PhaseClock(settle)
    with clock.running(), phase("forward"):
        now[0] += 4
    assert clock.pop_seconds()["forward"] == 5


def test_without_a_clock_nothing_is_counted_and_an_unknown_name_is_an_error():
    with phase("decode"):
        pass
    with pytest.raises(KeyError, match="'decod' is not a phase"), phase("decod"):
        pass
