"""The parent of a program: runs it within limits, and ends all that it started. Never imported.

``command_program.py`` starts this file for each program, with a request on its standard input; its answer
is one JSON object on its standard output. It uses the standard library alone, so that it starts fast. Every
process that the program starts stays below it, as orphans become children of the nearest subreaper, and when
the trainer ends, however it ends, this process sees another parent and ends them all.
"""

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

TICK = 0.1
"""Seconds between two looks at the trainer, the clock and the number of processes."""

DISK_TICK, DISK_SHARE = 0.5, 0.05
"""Seconds between two looks at the disk, and the share of the time that these may take."""

END_SECONDS = 10.0
"""Seconds in which killed processes must have ended."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, bytearray()

    def add(self, part: bytes) -> None:
        """Append what was read."""
        self._bytes += part
        if len(self._bytes) > 2 * self._most:
            del self._bytes[: -self._most]

    def text(self) -> str:
        """Return the end as text."""
        return bytes(self._bytes[-self._most :]).decode("utf-8", errors="replace")


class Supervisor:
    """One program with its limits."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request, self._stopped = request, False
        self._code: int | None = None
        self._streams = selectors.DefaultSelector()
        self._tails = {name: Tail(request["max_output"]) for name in ("stdout", "stderr")}
        self._disk_at, self._disk = 0.0, 0

    def run(self) -> dict[str, Any]:
        """Run the program to its end; return its exit code, or the limit that ended it, and its output."""
        signal.signal(signal.SIGTERM, self._stop)
        try:
            self._start()
        except OSError as error:
            return {"ended": "start", "error": f"{type(error).__name__}: {error}"}
        ended, began = None, time.monotonic()
        while self._code is None and ended is None:
            self._read(TICK)
            self._reap()
            ended = self._over(time.monotonic() - began)
        left = end_all(self._program.pid)
        self._read(0.0)
        if ended is None and left:
            ended = "left"
        if ended is None and self._disk_over(now=True):
            ended = "max_disk"
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
        while (ended := _wait()) and ended[0]:
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
        return "max_disk" if self._disk_over() else None

    def _disk_over(self, now: bool = False) -> bool:
        """Return whether the workspace is too large, as of the last look."""
        began = time.monotonic()
        if now or began >= self._disk_at:
            self._disk = disk_usage(self._request["folder"])
            took = time.monotonic() - began
            self._disk_at = began + max(DISK_TICK, took / DISK_SHARE)
        return self._disk > self._request["max_disk"]

    def _stop(self, *_: object) -> None:
        self._stopped = True


def disk_usage(folder: str) -> int:
    """Return the bytes on disk of the files below a folder; links are not followed."""
    total = 0
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:  # deleted since
                continue
    return total


def descendants(most: int | None = None) -> set[int]:
    """Return the processes below this one, those that have ended and are not reaped among them.

    Args:
        most: the number at which it stops to look for more.
    """
    found, ahead = set[int](), [os.getpid()]
    while ahead and (most is None or len(found) <= most):
        process = ahead.pop()
        new = _children(process) - found
        found |= new
        ahead += new
    return found


def _children(process: int) -> set[int]:
    """Return the children of a process; none if it has ended."""
    children = set[int]()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                children |= {int(each) for each in file.read().split()}
    return children


def end_all(group: int) -> int:
    """Kill all processes below this one; return how many are left, such as those of another user.

    Args:
        group: of the program, which the kernel kills as one: no process of it starts another meanwhile.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        stopped = set[int]()
        while new := descendants() - stopped:  # one that is stopped starts no other
            for process in new:
                _signal(process, signal.SIGSTOP)
            stopped |= new
        for process in stopped:
            _signal(process, signal.SIGKILL)
        while (ended := _wait()) and ended[0]:
            pass
        if ended is None:
            return 0
        time.sleep(0.005)
    return len(descendants())


def _signal(process: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended or belongs to another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _wait() -> tuple[int, int] | None:
    """Return id and status of a child that has ended; (0, 0) if all run, None if there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None


def _prctl(option: int, value: int) -> None:
    """Set an option of this process."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Run the program of the request."""
    request = json.load(sys.stdin.buffer)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # to be heard among many processes
    result = Supervisor(request).run()
    if request["afterwards"]:
        client = {"env": request["variables"], "stdin": subprocess.DEVNULL, "capture_output": True}
        subprocess.run(request["afterwards"], check=False, **client)
    if os.getppid() == request["parent"]:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
