"""Runs functions in forked processes, which need no imports anew and may be killed at any moment."""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from truing.engines.vllm.server_process import free_port
from truing.utils.end_with_parent import child_variables, end_with_parent

LIMIT = 120.0
"""Seconds after which a process counts as hung."""

Message = list[Any]
Send = Callable[..., None]
"""Sends a message, a list of JSON values, to the parent; a whole message or none."""


@dataclass
class End:
    """How a forked process ended."""

    exit_code: int  # negative: the number of the signal
    messages: list[Message] = field(default_factory=list[Message])
    seconds: float = 0.0
    hung: bool = False
    printed: str = ""

    def of_kind(self, kind: str) -> list[Message]:
        """Return the messages of a kind, without the kind."""
        return [message[1:] for message in self.messages if message[0] == kind]


def run_forked(
    work: Callable[[Send], None], log: Path, kill_after: float | None = None, victim: str = "group"
) -> End:
    """Run ``work`` in a forked process of its own group; return how it ended.

    Args:
        work: gets the function that sends messages; an exception is exit code 1.
        log: the file for what it prints.
        kill_after: seconds after its message ``begins`` at which processes are killed.
        victim: which: the whole ``group``, the ``launcher`` of ranks alone, or one ``rank``.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        os.close(reading)
        _work_and_exit(work, writing, log)
    os.close(writing)
    end = _wait(process, reading, kill_after, victim)
    end.printed = log.read_text(errors="replace") if log.exists() else ""
    return end


def import_all(work: Callable[[Send], None], folder: Path) -> None:
    """Import what ``work`` imports late, in this process: forked ones then need not."""
    names = folder / "modules"

    def note_modules(send: Send) -> None:
        work(send)
        names.write_text(" ".join(sys.modules))

    end = run_forked(note_modules, folder / "log")
    if end.exit_code:
        raise RuntimeError(end.printed)
    for name in names.read_text().split():
        with suppress(ImportError):  # names that stand for no module of their own
            import_module(name)


def run_ranks(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in this many forked ranks, with the variables that torchrun gives them."""
    port, processes, launcher = free_port(), set[int](), child_variables()
    for rank in range(count):
        process = os.fork()
        if not process:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **launcher}
            end_with_parent()
            _call_and_exit(partial(work, rank))
        processes.add(process)
    code = 0
    while processes and not code:
        process, status = os.wait()
        processes.discard(process)
        code = os.waitstatus_to_exitcode(status)
    for process in processes:  # as torchrun does: they would wait for the one that has ended
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if code < 0:
        os.kill(os.getpid(), -code)
    if code:
        raise RuntimeError(f"a rank ended with {code}")


def _work_and_exit(work: Callable[[Send], None], pipe: int, log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    _call_and_exit(lambda: work(lambda *message: _write(pipe, message)))


def _write(pipe: int, message: tuple[Any, ...]) -> None:
    os.write(pipe, json.dumps(message).encode()[:4000] + b"\n")


def _call_and_exit(work: Callable[[], None]) -> None:
    """Call a function and end the process, without what Python does at its end for the parent."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int, pipe: int, kill_after: float | None, victim: str) -> End:
    """Read messages until all processes have ended; kill at the moment, and the group once it hangs."""
    start = time.monotonic()
    data, deadline, hung = b"", start + LIMIT, False
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            hung = deadline == start + LIMIT
            if hung or victim == "group":
                _kill_group(process)
                break
            _kill_alone(process, victim)
            deadline = start + LIMIT
            continue
        if not (chunk := os.read(pipe, 65536)):
            break
        data += chunk
        if kill_after is not None and b'["begins"]\n' in data:
            deadline, kill_after = time.monotonic() + kill_after, None
        if b'["trained"]\n' in data:
            deadline = start + LIMIT
    os.close(pipe)
    _, status = os.waitpid(process, 0)
    _kill_group(process)  # what it left behind
    messages = [json.loads(line) for line in data.split(b"\n")[:-1]]
    return End(os.waitstatus_to_exitcode(status), messages, time.monotonic() - start, hung)


def _kill_alone(process: int, victim: str) -> None:
    """Kill the launcher, or its last rank if it has started any."""
    ranks = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    os.kill(int(ranks[-1]) if ranks and victim == "rank" else process, signal.SIGKILL)


def _kill_group(process: int) -> None:
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        return
