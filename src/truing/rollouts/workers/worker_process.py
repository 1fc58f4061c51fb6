"""One process, seen from the trainer: its calls run one after the other, and it restarts after a crash.

A call that hangs or crashes ends the process, and is an error. Other episodes of the process are opened
again at their next call: their earlier turns are replayed, and each reply must equal the one recorded.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any

from truing.rollouts.workers.calls import CallResult, EnvCall
from truing.rollouts.workers.process_main import OUT_OF_MEMORY, ProcessSetting, main

START_SECONDS = 600.0
"""Longest start of a process; its environment may read large files."""

GRACE_SECONDS = 2.0
"""Seconds beyond the limit until a process that did not end itself is killed."""

_START = threading.Lock()  # multiprocessing polls all processes of the program at each start


class ProcessEnded(Exception):
    """The process ended during a call; the text says how."""


class WorkerProcess:
    """A process with an environment, and the thread that waits for its results."""

    def __init__(self, setting: ProcessSetting, name: str) -> None:
        self._setting, self._name = setting, name  # the name of the environment, for errors
        self._thread = ThreadPoolExecutor(1, "environment")
        self._process: Any = None
        self._connection: Connection | None = None
        self._trace: Connection | None = None
        self._stopped = False
        self._histories: dict[int, list[tuple[EnvCall, Any]]] = {}  # calls and values, by episode
        self._open: set[int] = set()  # episodes of the present process

    def submit(self, call: EnvCall) -> Future[CallResult[Any]]:
        """Run a call after those before it."""
        return self._thread.submit(self._run, call)

    def start(self) -> None:
        """Start the process unless it runs.

        Raises:
            ProcessEnded: It did not start, or its environment could not be made.
        """
        with _START:
            if self._stopped:
                raise ProcessEnded("the run has ended")
            if self._process is not None and self._process.is_alive():
                return
        self._kill()
        context = forkserver()
        self._connection, for_child = context.Pipe()
        self._trace, trace_for_child = context.Pipe(duplex=False)
        with _START:
            process = context.Process(target=main, args=(for_child, trace_for_child, self._setting))
            process.start()
            self._process, stopped = process, self._stopped
        for_child.close()  # so that the end of the process closes the connection
        trace_for_child.close()
        if stopped:
            self._kill()
        if error := pickle.loads(self._receive(START_SECONDS, "its start")):
            self._kill()
            raise ProcessEnded(f"{self._name} could not be made in a process: {error}")

    def stop(self) -> None:
        """End the process now, also during a call; it does not start again."""
        with _START:
            self._stopped = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._kill()

    def _run(self, call: EnvCall) -> CallResult[Any]:
        """Run a call and return its result."""
        if call.kind == "close" and call.episode not in self._open:
            self._histories.pop(call.episode, None)
            return CallResult(value=False)
        try:
            self.start()
            if call.episode in self._histories and call.episode not in self._open:
                self._replay(call.episode)
            result = self._exchange(call)
        except ProcessEnded as error:
            return CallResult(error=str(error))
        if call.kind in ("open", "reply") and not result.error:
            self._histories.setdefault(call.episode, []).append((call, result.value))
            self._open.add(call.episode)
        if call.kind == "close":
            self._histories.pop(call.episode, None)
            self._open.discard(call.episode)
        return result

    def _replay(self, episode: int) -> None:
        """Bring an episode to its last state in a new process."""
        for call, value in self._histories[episode]:
            again = self._exchange(call)
            if again.error or again.value != value:
                raise ProcessEnded(
                    "another rollout ended its process, and the replay of its turns replied differently: "
                    f"{again.error or again.value!r:.300} instead of {value!r:.300}"
                )
        self._open.add(episode)

    def _exchange(self, call: EnvCall) -> CallResult[Any]:
        """Send a call and return its result."""
        try:
            data = pickle.dumps(call)
        except Exception as error:  # noqa: BLE001 — what a task holds is user code
            return CallResult(error=f"{call} cannot be sent to a process: {error}")
        assert self._connection is not None
        try:
            self._connection.send_bytes(data)
        except OSError:
            raise ProcessEnded(self._ending(call)) from None
        received = self._receive(self._setting.timeout + GRACE_SECONDS, call)
        try:
            return pickle.loads(received)
        except Exception as error:  # noqa: BLE001 — a class of the user may not unpickle
            return CallResult(error=f"the result of {call} cannot be unpickled: {error}")

    def _receive(self, seconds: float, call: EnvCall | str) -> bytes:
        """Return what the process sends within some seconds."""
        assert self._connection is not None
        ready = wait([self._connection, self._process.sentinel], seconds)
        try:
            if self._connection in ready:
                return self._connection.recv_bytes()
        except (EOFError, OSError):
            wait([self._process.sentinel], GRACE_SECONDS)  # it is ending
        raise ProcessEnded(self._ending(call, hung=not ready))

    def _ending(self, call: EnvCall | str, hung: bool = False) -> str:
        """End the process, and return how the call ended it."""
        assert self._trace is not None
        self._kill()
        if self._stopped:
            return "the run has ended"
        place = _read(self._trace)
        lines = f"\n{place}" if place else ""
        if hung or place.startswith("Timeout"):
            seconds = self._setting.timeout if isinstance(call, EnvCall) else START_SECONDS
            return (
                f"no result within {seconds:g} s: {call} of {self._name} hung; its process was ended{lines}"
            )
        return f"{call} of {self._name} {_exit_text(self._process.exitcode, self._setting.memory)}{lines}"

    def _kill(self) -> None:
        """End the process, if it runs, and those that it started."""
        self._open.clear()
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # all have ended, or it had no group yet
            with _START:
                self._process.kill()
        wait([self._process.sentinel])
        with _START:
            self._process.join()


def _exit_text(code: int, memory: int | None) -> str:
    """Return how a process ended, from its exit code."""
    if code == OUT_OF_MEMORY and memory is not None:
        return f"used up the memory of its process (episode.process_memory = {memory / 1e9:g} GB)"
    if code < 0:
        return f"crashed: its process was ended by signal {signal.Signals(-code).name}"
    return f"ended its process with exit code {code}"


def _read(trace: Connection) -> str:
    """Return what a process that has ended wrote on the place of its hang or crash."""
    parts: list[bytes] = []
    while trace.poll() and (part := os.read(trace.fileno(), 65536)):
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace").strip()


def forkserver() -> Any:
    """Return how processes start: forked from a server without threads, which has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    command_line = [name for name in ("truing.cli",) if name in sys.modules]  # each process imports it
    context.set_forkserver_preload([main.__module__, "truing.envs", *command_line])
    return context
