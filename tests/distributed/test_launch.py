"""The launcher of ranks, called as a function."""

import os
import signal

import pytest

from truing.distributed.launch import launch

ENDED = 'import os, signal; os.kill(os.getpid(), signal.SIGKILL) if os.environ["RANK"] == "1" else None'


@pytest.mark.integration
@pytest.mark.parametrize(("code", "exit_code"), [("pass", 0), (ENDED, 137)])
def test_the_process_is_as_before(code, exit_code, tmp_path, monkeypatch):
    """torch's launcher leaves its handlers: SIGTERM would not end a later run in the process as it should."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    handlers = [signal.getsignal(number) for number in numbers]
    environment = dict(os.environ)
    assert launch(["-c", code], 2, tmp_path).exit_code == exit_code
    assert [signal.getsignal(number) for number in numbers] == handlers
    assert dict(os.environ) == environment
