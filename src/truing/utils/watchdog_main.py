"""The process that ends another one if a call does not return; it imports the standard library alone."""

import json
import os
import select
import signal
import sys
import time

TICK = 0.2
"""Seconds between two looks at the time."""

TRACE_SECONDS = 5.0
"""Seconds in which the other process writes where it is, and ends."""

TRACE_CHARACTERS = 4000
"""The end of a trace that an error shows."""


def main(process: int, trace: int) -> None:
    """Read what begins and ends from standard input, until its end; end the process of an overdue call.

    Args:
        process: id of the process.
        trace: from which its place can be read once it gets SIGVTALRM.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    running: dict[int, tuple[float, float, str, str]] = {}  # seconds at its end and in all, name, remedy
    clock, last, unread = 0.0, time.monotonic(), b""
    while os.getppid() == process:  # its id may be another's as soon as it has ended
        if select.select([0], [], [], TICK)[0]:
            if not (data := os.read(0, 65536)):
                return
            *lines, unread = (unread + data).split(b"\n")
            for key, *call in map(json.loads, lines):
                running.pop(key, None)
                if call:
                    running[key] = (clock + call[0], *call)
        now = time.monotonic()
        if not is_stopped(process):  # nor does time pass while both are stopped
            clock += min(now - last, 2 * TICK)
        last = now
        for due, seconds, what, remedy in running.values():
            if due <= clock:
                return end(process, trace, seconds, what, remedy)


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped, as by Ctrl-Z; False where the system does not say."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def end(process: int, trace: int, seconds: float, what: str, remedy: str) -> None:
    """End the process, and print what it did."""
    _kill(process, signal.SIGVTALRM)
    read = b""
    while select.select([trace], [], [], TRACE_SECONDS)[0] and (data := os.read(trace, 65536)):
        read += data
    _kill(process, signal.SIGKILL)
    place = read.decode("utf-8", "replace").strip()[-TRACE_CHARACTERS:].replace("\n", "\n    ")
    text = f"error: {what} does not return, and a thread cannot be stopped: the process was ended"
    text += f"\n  got: nothing within {seconds:g} s; it was at\n    {place}\n  remedy: {remedy}"
    printable = "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)
    print(printable, file=sys.stderr, flush=True)


def _kill(process: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    if os.getppid() == process:
        os.kill(process, number)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
