"""The main loop of a process in which episodes live and rewards run.

The process ends, with all processes that its calls started, if a call exceeds its time limit, if memory is
used up, and if the trainer is gone.
"""

import faulthandler
import os
import pickle
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from truing.envs.base import Env
from truing.errors import RecipeError, TruingError
from truing.rollouts.workers.calls import CallResult, EpisodeTable, call_result
from truing.utils.end_with_parent import end_with_parent

MAX_RESULT_BYTES = 64 * 2**20
"""A larger result of a call is an error."""

OUT_OF_MEMORY = 86
"""Exit status of a process that used up its memory."""


@dataclass(frozen=True)
class ProcessSetting:
    """What a process is started with."""

    env: bytes  # of ``env_copy``
    rewards: Mapping[str, tuple[float, str]]  # of ``reward_names``
    environ: Mapping[str, str]
    sys_path: Sequence[str]
    timeout: float  # seconds of a call
    memory: int | None  # bytes


def main(connection: Connection, trace: Connection, setting: ProcessSetting) -> None:
    """Run calls from ``connection`` until it closes; ``trace`` gets the place of a hang or a crash."""
    os.setsid()  # so that one signal ends what the calls start, and Ctrl-C reaches the trainer only
    end_with_parent()
    os.dup2(2, 1)  # what an environment prints is no result of a command
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a process that is killed keeps none
    faulthandler.enable(file=trace.fileno())
    os.environ.update(setting.environ)
    sys.path[:] = setting.sys_path
    torch.set_num_threads(1)
    if setting.memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (setting.memory, resource.RLIM_INFINITY))
    opened = call_result(lambda: EpisodeTable(_environment(setting)))
    connection.send_bytes(pickle.dumps(opened.error))
    if opened.value is not None:
        _serve(connection, trace, opened.value, setting.timeout)
    end_group()


def _environment(setting: ProcessSetting) -> Env:
    """Return the environment, made in this process; raise if it has other rewards than the trainer's."""
    env: Env = pickle.loads(setting.env)
    if reward_names(env) != setting.rewards:
        raise RecipeError(
            "the environment has other rewards in a process",
            got=reward_names(env),
            expected=setting.rewards,
            remedy="do not change an environment after make_env: pass rewards=, or set them in its class",
        )
    return env


def reward_names(env: Env) -> dict[str, tuple[float, str]]:
    """Return the weight and the function's name of each reward."""
    return {
        name: (weight, getattr(function, "__qualname__", type(function).__qualname__))
        for name, (function, weight) in env.rewards.items()
    }


def _serve(connection: Connection, trace: Connection, table: EpisodeTable, timeout: float) -> None:
    """Run calls until the trainer closes the connection."""
    while True:
        try:
            data = connection.recv_bytes()
        except (EOFError, OSError):
            return
        # a thread in C: it also ends a call that never releases the GIL, and that nobody waits for any more
        faulthandler.dump_traceback_later(timeout, exit=True, file=trace.fileno())
        result = call_result(lambda data=data: _run(table, data))
        message = _portable(result)
        faulthandler.cancel_dump_traceback_later()
        connection.send_bytes(message)


def _run(table: EpisodeTable, data: bytes) -> Any:
    """Run a pickled call; without memory the process ends, as what fills it would stay."""
    try:
        return table.run(pickle.loads(data))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _portable(result: CallResult[Any]) -> bytes:
    """Return a result as bytes; what cannot be pickled is an error."""
    if result.raised is not None:
        return pickle.dumps(CallResult(error=result.error, raised=_plain(result.raised, result.error)))
    sent = call_result(lambda: pickle.dumps(result))
    if sent.value is None:
        return pickle.dumps(CallResult[Any](error=f"its result cannot be pickled: {sent.error}"))
    if len(sent.value) > MAX_RESULT_BYTES:
        size = f"{len(sent.value) / 2**20:.0f} MiB, more than {MAX_RESULT_BYTES // 2**20} MiB"
        return pickle.dumps(CallResult[Any](error=f"its result has {size}"))
    return sent.value


def _plain(error: TruingError, traceback: str) -> TruingError:
    """Return an error that holds text only; its note is the traceback."""
    got, expected = (None if part is None else str(part) for part in (error.got, error.expected))
    plain = type(error)(error.what, got=got, expected=expected, remedy=error.remedy)
    plain.add_note(traceback)
    return plain


def end_group() -> None:
    """End this process and those that it started."""
    os.killpg(os.getpgid(0), signal.SIGKILL)
