"""What happens to a run while it trains: signals, a full disk, a folder that vanishes, a clock that jumps."""

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import truing
from dev.measure.chaos.forks import run_forked
from truing.errors import RecordError

MIB = 2**20
FULL = 16 * MIB
"""Bytes of the file system that is filled."""

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000


@dataclass(frozen=True)
class Disturbance:
    """What is done to a run after some steps, and how it must end."""

    name: str
    disturb: Callable[[Path], None]  # gets the run directory; limits hold for this process only
    repair: Callable[[Path], None] = lambda run: None
    exit_code: int = 2  # 0: the run goes on as if nothing had happened
    says: str = ""  # words of the error
    needs_mounts: bool = False
    may_save: bool = False  # the run may save one checkpoint more as it ends
    may_crash: bool = False  # libraries without a check of their own end the process, as a kill does


def fill_disk(run: Path) -> None:
    """Fill the file system of the run."""
    with (run.parent / "filler").open("wb", buffering=0) as handle:
        try:
            for size in (2**20, 2**10, 1):
                while True:
                    handle.write(bytes(size))
        except OSError:
            return


def limit_files(run: Path) -> None:
    """Let no file grow beyond the largest of the record, as a quota does."""
    largest = max(path.stat().st_size for path in run.iterdir() if path.is_file())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))


HELD: list[bytearray] = []
"""Memory that is taken from the run until its process ends."""


def limit_memory(run: Path) -> None:
    """Leave a few MiB of address space, also of what the process had freed and kept."""
    limit = psutil.Process().memory_info().vms + 4 * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with suppress(MemoryError):
        while True:
            HELD.append(bytearray(MIB))
    del HELD[-4:]


def make_read_only(run: Path) -> None:
    """Mount the run directory on itself, read-only."""
    subprocess.run(["mount", "--bind", run, run], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", run], check=True)


def start_another(run: Path) -> None:
    """Start two other runs in the directory; both must be refused."""
    for resume, says in ((True, "is being written by another process"), (False, "is not empty")):

        def refused(send: Callable[..., None], resume: bool = resume, says: str = says) -> None:
            recipe = run / "recipe.toml"
            try:
                truing.train(recipe, out=run, resume=resume, on_event=lambda kind, facts: None)
            except RecordError as error:
                send("refused", says in str(error))

        end = run_forked(refused, run.parent / "another.log")
        if end.of_kind("refused") != [[True]]:
            raise AssertionError(f"another run was not refused: {end}")


def turn_clock_back(run: Path) -> None:
    """Let the clock be a day behind."""
    real = time.time
    time.time = lambda: real() - 86_400.0


DISTURBANCES = (
    Disturbance("SIGTERM", lambda run: os.kill(os.getpid(), signal.SIGTERM), exit_code=143, may_save=True),
    Disturbance("Ctrl-C", lambda run: os.kill(os.getpid(), signal.SIGINT), exit_code=130, may_save=True),
    Disturbance(
        "the disk is full",
        fill_disk,
        lambda run: (run.parent / "filler").unlink(),
        says="No space left on device",
        needs_mounts=True,
    ),
    Disturbance("a quota", limit_files, says="File too large"),
    Disturbance(
        "the directory becomes read-only",
        make_read_only,
        lambda run: subprocess.run(["umount", run], check=True) and None,
        says="Read-only file system",
        needs_mounts=True,
    ),
    Disturbance(
        "the directory vanishes",
        lambda run: run.rename(run.with_name("moved")) and None,
        lambda run: run.with_name("moved").rename(run) and None,
        says="No such file or directory",
    ),
    Disturbance("another run in the same directory", start_another, exit_code=0),
    Disturbance("the clock jumps back by a day", turn_clock_back, exit_code=0),
    Disturbance("memory runs out", limit_memory, says="memory ran out", may_save=True, may_crash=True),
)


def own_mounts(folder: Path) -> bool:
    """Mount a small file system at ``folder`` that only this process sees; False if that is not permitted."""
    flags = CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWNS | CLONE_NEWUSER
    if ctypes.CDLL(None).unshare(flags):
        return False
    subprocess.run(["mount", "--make-rprivate", "/"], check=False)
    options = f"size={FULL}"
    return not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "chaos", folder], check=False
    ).returncode
