"""Long commands say how far they are, and how long they still take."""

import pytest

from truing.terminal import waiting
from truing.terminal.waiting import Waiting


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_after_two_seconds_and_then_every_five(clock):
    lines = []
    show = Waiting("judged {done} of {total} steps", lines.append)
    for done, seconds in enumerate([1, 2, 3, 6, 7, 8, 20], start=1):
        clock[0] = 100.0 + seconds
        show(done, 10)
    assert lines == [
        "judged 2 of 10 steps, 8 s left",
        "judged 5 of 10 steps, 7 s left",
        "judged 7 of 10 steps, 9 s left",
    ]


@pytest.mark.parametrize(("done", "total"), [(0, 10), (10, 10), (3, 0)])
def test_no_time_left_is_made_up(clock, done, total):
    lines = []
    show = Waiting("{done} of {total}", lines.append)
    clock[0] += 60
    show(done, total)
    assert lines == []
