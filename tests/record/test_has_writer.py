"""Whether somebody writes a run can be asked at any time, and to ask disturbs nobody."""

import os
import subprocess
import sys
import threading
import time

import pytest

import truing.utils.jsonl as lines
from truing.errors import RecordError
from truing.record import RunReader, RunWriter, has_writer

pytestmark = pytest.mark.integration

WRITE = """
import sys
from pathlib import Path
from truing.record import RunWriter
with RunWriter(Path(sys.argv[1]), resume=True):
    print("open", flush=True)
    sys.stdin.read()
"""
HOLD = """
import fcntl, sys
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_SH)
    print("held", flush=True)
    sys.stdin.read()
"""


def start(program, argument):
    """A process that has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(argument)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline()
    return process


def test_a_run_is_being_written_while_another_process_has_it_open(run):
    assert not has_writer(run)
    with start(WRITE, run) as writer:
        assert has_writer(run)
        assert has_writer(run)
        writer.communicate()
    assert writer.returncode == 0
    assert not has_writer(run)
    with start(WRITE, run) as killed:
        assert has_writer(run)
        killed.kill()
        killed.communicate()
    assert not has_writer(run)  # the lock went with its process


def test_who_asks_leaves_the_run_to_a_writer_and_changes_nothing(run):
    before = (run / "steps.jsonl").read_bytes()
    assert not has_writer(run)
    with RunWriter(run, resume=True):
        assert has_writer(run)
        assert (run / "steps.jsonl").read_bytes() == before
    assert len(RunReader(run).steps()) == 3


def test_a_writer_waits_out_the_instant_of_one_who_asks(run):
    with start(HOLD, run / "steps.jsonl") as asking:
        assert not has_writer(run)  # others may ask at that instant too
        threading.Timer(0.3, asking.stdin.close).start()
        began = time.monotonic()
        RunWriter(run, resume=True).close()
        assert time.monotonic() - began > 0.2
        asking.wait()


def test_a_writer_starts_while_others_ask_without_end(run):
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            has_writer(run)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            RunWriter(run, resume=True).close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_second_writer_is_refused_after_a_moment(run):
    with start(WRITE, run) as writer:
        began = time.monotonic()
        with pytest.raises(RecordError, match="written by another process"):
            RunWriter(run, resume=True)
        assert lines.LOCK_TIMEOUT <= time.monotonic() - began < lines.LOCK_TIMEOUT + 5
        writer.communicate()


def test_where_there_is_no_run_nobody_writes(tmp_path):
    assert not has_writer(tmp_path)
    assert not has_writer(tmp_path / "nowhere")


def test_what_cannot_be_asked_is_an_error(run, monkeypatch):
    monkeypatch.setattr("builtins.open", _refuse)
    with pytest.raises(RecordError, match=r"(?s)cannot determine whether .*steps\.jsonl.*Permission denied"):
        has_writer(run)


def _refuse(*args, **kwargs):
    raise PermissionError(13, os.strerror(13))
