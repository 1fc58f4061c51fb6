"""The connection to Ray: a cluster that runs at an address, or an instance of this run on this machine."""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from truing.errors import RecipeError
from truing.utils.cores import usable_cores
from truing.utils.process_state import signal_handlers_kept

LOCAL, AUTO = "local", "auto"
"""In place of an address: an instance for this run alone, and the cluster that runs on this machine."""

ANSWER_SECONDS = 20.0
"""Seconds in which a cluster must answer."""

STORE_BYTES = 100 * 2**20
"""Ray's memory for objects in an instance of our own; we send none."""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to Ray as long as the block runs; an instance that was started for it ends with it.

    Raises:
        RecipeError: Ray is not installed, or none answers at the address.
    """
    # nothing is sent to Ray's makers
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise RecipeError(
            "--ray needs the package ray", got=error, remedy="pip install truing[ray]"
        ) from error
    if address != LOCAL:
        _check_answers(address)
    own = {"num_cpus": usable_cores(), "include_dashboard": False, "object_store_memory": STORE_BYTES}
    with signal_handlers_kept():  # Ray sets its own and leaves it
        try:
            ray.init(
                address,
                log_to_driver=False,  # the first rank's output comes through its actor
                logging_level=logging.ERROR,
                **(own if address == LOCAL else {}),
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _no_answer(address, str(error)) from error
        try:
            yield
        finally:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise unless a Ray cluster of this version answers; Ray's own client would wait, or end the process."""
    if address.startswith("ray://"):
        raise RecipeError(
            "--ray takes the address of a cluster's head, not that of a Ray client",
            got=address,
            expected=f"HOST:PORT, {AUTO} or {LOCAL}",
            remedy="start the run on a node of the cluster, with --ray auto",
        )
    if address != AUTO:
        _check_listens(address)
    words = [] if address == AUTO else ["--address", address]
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *words]
    try:
        check = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _no_answer(address, f"no answer within {ANSWER_SECONDS:g} s") from error
    if check.returncode:
        raise _no_answer(address, _last_line(check.stderr.splitlines()))


def _check_listens(address: str) -> None:
    """Raise unless something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _no_answer(address, str(error)) from error


def _last_line(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "it is not healthy")


def _no_answer(address: str, got: str) -> RecipeError:
    """Return the error that no Ray answers."""
    return RecipeError(
        f"no Ray cluster answers at {address}",
        got=got,
        expected="a cluster that was started with `ray start`, of this version of Ray",
        remedy=f"start it, fix the address, or use --ray {LOCAL} for this machine alone",
    )
