"""The parent of a program: runs it within limits, and ends all that it started. Never imported.

``command_program.py`` starts this folder for each program, with a request on its standard input; its answer
is one JSON object on its standard output. It uses the standard library alone, so that it starts fast. Every
process that the program starts stays below it, as orphans become children of the nearest subreaper, and when
the trainer ends, however it ends, this process sees another parent and ends them all.
"""

import ctypes
import json
import math
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from disk import Disk
from processes import descendants, end_all, take_ended
from tail import Tail

TICK = 0.1
"""Seconds between two looks at the trainer, the clock and the number of processes."""

REMOVALS = (1, 5, 20)
"""Seconds before further tries to remove a container whose client was killed: it may be still made."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """One program with its limits."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request, self._stopped = request, False
        self._code: int | None = None
        self._streams = selectors.DefaultSelector()
        self._tails = {name: Tail(request["max_output"]) for name in ("stdout", "stderr")}
        self._disk = Disk(request["folder"], request["max_disk"])

    def run(self) -> dict[str, Any]:
        """Run the program to its end; return its exit code, or the limit that ended it, and its output."""
        signal.signal(signal.SIGTERM, self._stop)
        try:
            self._start()
        except OSError as error:
            return {"ended": "start", "error": f"{type(error).__name__}: {error}"}
        try:
            ended = self._watch()
        finally:  # whatever happens here, nothing that it started goes on
            left = end_all(self._program.pid)
        self._read(0.0)
        if ended is None:
            at_the_end = Disk(self._request["folder"], self._request["max_disk"])
            ended = "left" if left else at_the_end.exceeded(math.inf)
        output = {name: tail.text() for name, tail in self._tails.items()}
        return {"ended": ended, "code": self._code, **output}

    def _start(self) -> None:
        """Start the program in a session of its own."""
        self._program = subprocess.Popen(  # kept: when it is deleted, it takes the exit code
            self._request["command"],
            cwd=self._request["folder"],
            env=self._request["variables"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=self._limit,  # this process has one thread
        )
        for name in self._tails:
            stream = getattr(self._program, name)
            os.set_blocking(stream.fileno(), False)
            self._streams.register(stream, selectors.EVENT_READ, name)

    def _watch(self) -> str | None:
        """Return once the program has ended, or exceeds a limit: which; None for none."""
        ended, began = None, time.monotonic()
        while self._code is None and ended is None:
            self._read(TICK)
            self._reap()
            ended = self._over(time.monotonic() - began)
        return ended

    def _limit(self) -> None:
        """Set the limits of the program's process, which all that it starts inherit."""
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpriority(os.PRIO_PROCESS, 0, self._request["nice"])
        limits = {"CORE": 0, "FSIZE": self._request["max_disk"], "DATA": self._request["memory"]}
        for name, cap in limits.items():
            if cap is not None:
                limit = getattr(resource, f"RLIMIT_{name}")
                hard = resource.getrlimit(limit)[1]  # the trainer's, which may be lower
                cap = cap if hard == resource.RLIM_INFINITY else min(cap, hard)
                resource.setrlimit(limit, (cap, cap))

    def _read(self, seconds: float) -> None:
        """Read what there is of the output within some seconds."""
        for key, _ in self._streams.select(seconds):
            while True:
                try:
                    part = os.read(key.fd, 1 << 16)
                except BlockingIOError:
                    break
                if not part:
                    self._streams.unregister(key.fileobj)
                    break
                self._tails[key.data].add(part)
                if seconds:
                    break  # a flood must not hide the limits

    def _reap(self) -> None:
        """Take the exit codes of processes that have ended, the program's among them."""
        while (ended := take_ended()) and ended[0]:
            if ended[0] == self._program.pid:
                self._code = os.waitstatus_to_exitcode(ended[1])

    def _over(self, seconds: float) -> str | None:
        """Return the limit that the program exceeds after some seconds; None for none."""
        if os.getppid() != self._request["parent"] or self._stopped:
            return "stop"
        if seconds > self._request["timeout"]:
            return "timeout"
        most = self._request["max_processes"]
        if len(descendants(most)) > most:
            return "max_processes"
        return self._disk.exceeded()

    def _stop(self, *_: object) -> None:
        self._stopped = True


def _prctl(option: int, value: int) -> None:
    """Set an option of this process."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _remove(request: dict[str, Any], killed: bool) -> None:
    """Remove the container of a program; a runtime prints the names of those that it has removed."""
    for seconds in (0, *(REMOVALS if killed else ())):
        time.sleep(seconds)
        client = {"env": request["variables"], "stdin": subprocess.DEVNULL, "capture_output": True}
        if subprocess.run(request["afterwards"], check=False, **client).stdout:
            return


def main() -> None:
    """Run the program of the request."""
    request = json.load(sys.stdin.buffer)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # to be heard among many processes
    result = {}
    try:
        result = Supervisor(request).run()
    finally:
        if request["afterwards"]:
            _remove(request, killed=result.get("code") is None and result.get("ended") != "start")
    if os.getppid() == request["parent"]:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
