"""What a library changes in the process is put back."""

import os
import signal
import threading

import pytest

from truing.utils.process_state import SIGNALS, environment_kept, signal_handlers_kept


def test_handlers_are_put_back_also_after_an_error():
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def fail():
        with signal_handlers_kept():
            for number in SIGNALS:
                signal.signal(number, lambda number, frame: None)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_a_thread_leaves_handlers_alone():
    """Only the main thread may set one."""
    errors = []

    def enter():
        try:
            with signal_handlers_kept():
                pass
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert not errors


def test_environment_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("TRUING_KEPT", "old")
    monkeypatch.setenv("TRUING_REMOVED", "old")
    monkeypatch.delenv("TRUING_NEW", raising=False)
    before = dict(os.environ)
    with environment_kept():
        os.environ["TRUING_KEPT"] = os.environ["TRUING_NEW"] = "new"
        del os.environ["TRUING_REMOVED"]
    assert dict(os.environ) == before
