"""The actor of a rank: starts its process on the node that Ray chose, and follows it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import ray
import ray.util

from truing.utils.end_with_parent import child_variables, end_group

STREAMS = ("stdout", "stderr")

STOP_SECONDS = 20.0
"""Seconds that a rank may take to end after SIGTERM."""

POLL_SECONDS, PAUSE = 0.5, 0.05
"""For how long a call follows a process, and between two looks."""


@dataclass(frozen=True)
class Report:
    """What a process did since the last report."""

    exit_code: int | None = None  # None while it runs; a negative one is a signal
    output: Mapping[str, bytes] = field(default_factory=dict[str, bytes])  # by stream
    notes: Sequence[str] = ()  # sentences for the terminal


class PlacedActor:
    """An actor that knows its node."""

    def place(self) -> tuple[str, str]:
        """Return the address and Ray's id of the node."""
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()


class RankActor(PlacedActor):
    """A rank's process, its output in files that the driver sees."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._read = dict.fromkeys(STREAMS, 0)  # bytes of each stream that were reported

    def free_port(self) -> int:
        """Return a port of this node that nothing listens on."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def missing(self, folder: str, token: Path, text: str) -> str:
        """Return what this node does not see as the driver does: a folder, a file with a text; "" is all."""
        if not Path(folder).is_dir():
            return folder
        with suppress(OSError):
            if token.read_text(encoding="utf-8") == text:
                return ""
        return str(token.parent)

    def start(
        self, arguments: Sequence[str], folder: str, variables: Mapping[str, str], output: Path
    ) -> None:
        """Start Python with these arguments, in a folder; what it prints goes to files in ``output``."""
        output.mkdir(parents=True, exist_ok=True)
        self._folder = output
        with (output / STREAMS[0]).open("wb") as stdout, (output / STREAMS[1]).open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "truing.cluster.rank_process", *arguments],
                cwd=folder,
                env=os.environ | dict(variables) | dict(child_variables()),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C reaches the driver alone, which passes it on
            )

    def poll(self, with_output: bool) -> Report:
        """Follow the process until it ends or prints, at most for ``POLL_SECONDS``."""
        assert self._process is not None
        end = time.monotonic() + POLL_SECONDS
        while True:
            code = self._process.poll()  # before its output, of which then nothing is missing
            output = self._new_output() if with_output else {}
            if code is not None or any(output.values()) or time.monotonic() > end:
                return Report(code, output)
            time.sleep(PAUSE)

    def interrupt(self) -> None:
        """Pass Ctrl-C on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """End the process and those that it started."""
        if self._process is not None:
            end_group(self._process, STOP_SECONDS)

    def _new_output(self) -> dict[str, bytes]:
        """Return what the process printed since the last call."""
        output = {}
        for stream in STREAMS:
            with (self._folder / stream).open("rb") as file:
                file.seek(self._read[stream])
                output[stream] = file.read()
            self._read[stream] += len(output[stream])
        return output
