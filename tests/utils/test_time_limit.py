"""Code of others ends: by an exception, or with its process."""

import itertools
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import pytest

from truing.utils.time_limit import TimeLimitExceeded, time_limit


def loop():
    for _ in itertools.count():
        pass


def generator():
    return max(number for number in itertools.count())


def swallows():
    while True:
        with suppress(Exception):
            loop()


@pytest.mark.parametrize("code", [loop, generator, swallows])
def test_loops_end_at_their_limit(code):
    started = time.monotonic()
    with pytest.raises(TimeLimitExceeded), time_limit(0.1, "a loop"):
        code()
    assert time.monotonic() - started < 1


def test_code_in_time_is_left_alone_and_so_is_what_follows():
    for _ in range(1000):
        with time_limit(0.05, "a call"):
            pass
    deadline = time.monotonic() + 0.15
    while time.monotonic() < deadline:
        pass


def test_a_limit_holds_within_a_longer_one():
    with time_limit(5, "outer"):
        with pytest.raises(TimeLimitExceeded), time_limit(0.05, "inner"):
            loop()
        with pytest.raises(TimeLimitExceeded), time_limit(0.05, "inner"):
            loop()


def ended_by_watchdog(call, seconds=0.3):
    """The result of a process whose call has a watchdog."""
    program = f"""
    import re, signal, time
    from itertools import count
    from truing.utils import watchdog
    watchdog.start()
    with watchdog.watched("reward 'mine'", {seconds}, "set episode.processes = true"):
        {call}
    print("went on")
    """
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)


@pytest.mark.parametrize("call", ["re.match('(a|a)+$', 'a' * 60 + 'b')", "9**9**9", "time.sleep(100)"])
def test_a_call_that_blocks_the_interpreter_ends_the_process_with_an_error(call):
    ended = ended_by_watchdog(call)
    assert ended.returncode != 0
    assert "error: reward 'mine' does not return" in ended.stderr
    assert "line 7" in ended.stderr
    assert "remedy: set episode.processes = true" in ended.stderr


def test_a_call_in_time_goes_on():
    ended = ended_by_watchdog("time.sleep(0.1)", 1.0)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "went on\n", "")
