"""What is done again and again takes at most its share of the time."""

import pytest

from truing.terminal.throttle import Throttle


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr("truing.terminal.throttle.time.monotonic", lambda: now[0])
    return now


def test_the_longer_it_takes_the_later_it_is_done_again(clock):
    pace = Throttle(share=0.01, min_interval=0.25)
    assert pace.seconds_left == 0
    with pace.measure():
        clock[0] += 0.02
    assert pace.seconds_left == pytest.approx(2.0)
    clock[0] += 2.5
    assert pace.seconds_left == 0


def test_what_is_quick_pauses_all_the_same(clock):
    pace = Throttle(share=0.01, min_interval=0.25)
    with pace.measure():
        pass
    assert pace.seconds_left == pytest.approx(0.25)
    with pytest.raises(KeyError), pace.measure():
        raise KeyError
    assert pace.seconds_left == pytest.approx(0.25)
