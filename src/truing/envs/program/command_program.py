"""A program that is a command: a process of this machine or a container, below a supervisor of its own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from truing.envs.program.config import ProcessConfig
from truing.envs.program.containers import FOLDER, SOCKET, URL, check_container, container_command
from truing.envs.program.endings import SHOWN, outcome_of
from truing.envs.program.relay import Relay, listen_at_file
from truing.envs.program.variables import (
    check_passed,
    filled,
    machine_variables,
    program_variables,
    search_path,
)
from truing.envs.program_env import Access
from truing.errors import ProgramError, RecipeError
from truing.types.rollout import Task

SUPERVISOR = Path(__file__).with_name("supervisor")

GRACE = 60.0
"""Seconds beyond the time limit in which a supervisor must have ended its program."""


class CommandProgram:
    """Starts a command for each rollout."""

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._running = set[subprocess.Popen[bytes]]()
        self._lock = threading.Lock()
        self._stopped = False
        _check_platform()
        check_passed(config)
        if config.runtime == "subprocess":
            _check_executable(_command(config)[0])
        elif config.image is not None:
            check_container(config)

    def run(self, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Run the command to its end, and return its outcome.

        Raises:
            ProgramError: It did not start, exceeded a limit, or crashed.
        """
        return self.run_as(self._config, task, access, workspace)

    def run_as(
        self, config: ProcessConfig, task: Task, access: Access | None, workspace: Path
    ) -> dict[str, Any]:
        """Run the command of a configuration of its own, such as one task's; without access, no model."""
        request = {
            "folder": str(workspace),
            "timeout": config.timeout,
            "max_output": config.max_output,
            "max_disk": config.disk_bytes,
            "parent": os.getpid(),
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
        }
        if config.runtime == "subprocess":
            result = self._supervised(request | _process(config, task, access, workspace), task)
        else:
            with nullcontext() if access is None else _endpoint_at_file(access, workspace):
                result = self._supervised(request | _container(config, task, access, workspace), task)
        return outcome_of(result, config, task, str(workspace))

    def allow(self) -> None:
        """Let programs start again after ``stop``."""
        self._stopped = False

    def stop(self) -> None:
        """End all programs that run, and start no other."""
        with self._lock:
            self._stopped = True
            for supervisor in self._running:
                supervisor.terminate()

    def _supervised(self, request: Mapping[str, Any], task: Task) -> dict[str, Any]:
        """Return the answer of a supervisor to a request."""
        with self._lock:
            if self._stopped:
                return {"ended": "stop"}
            supervisor = _start_supervisor()
            self._running.add(supervisor)
        try:
            answer, errors = supervisor.communicate(json.dumps(request).encode(), request["timeout"] + GRACE)
        except subprocess.TimeoutExpired:
            answer, errors = b"", b"no answer"
        finally:
            with self._lock:
                self._running.discard(supervisor)
            if supervisor.poll() is None:  # after an interrupt, or if something stopped it
                supervisor.kill()  # which ends the program, though not what it has started
                supervisor.wait()
        if not answer:
            raise ProgramError(
                f"the process that watches the program of task {task.task_id!r} ended",
                got=f"exit code {supervisor.returncode}: {errors.decode(errors='replace')[-SHOWN:]}",
                remedy="a program may not stop or kill processes that it did not start",
            )
        return json.loads(answer)


def _command(config: ProcessConfig) -> tuple[str, ...]:
    """Return the command of a program that is one."""
    assert config.command is not None
    return config.command


def _process(config: ProcessConfig, task: Task, access: Access | None, workspace: Path) -> dict[str, Any]:
    """Return what a supervisor starts for a program of this machine."""
    variables = program_variables(config, access, str(workspace), os.environ)
    return {
        "command": [filled(part, task, sys.executable) for part in _command(config)],
        "variables": machine_variables(os.environ) | variables,
        "memory": config.memory_bytes,
        "max_processes": config.max_processes,
        "afterwards": None,
    }


def _container(config: ProcessConfig, task: Task, access: Access | None, workspace: Path) -> dict[str, Any]:
    """Return what a supervisor starts for a program in a container, which has limits of its own."""
    inside = None if access is None else Access(URL, access.key)
    variables = program_variables(config, inside, FOLDER, os.environ)
    command = [filled(part, task, "python3") for part in _command(config)]
    # a rollout that runs again may come while the container before it is being removed
    name = f"truing-{os.getpid()}-{workspace.name}-{uuid4().hex[:8]}"
    run, remove, passed = container_command(config, command, variables, str(workspace), name)
    of_client = config.runtime != "apptainer"  # the container is no child of it
    return {
        "command": run,
        "variables": {**os.environ, **passed},
        "memory": None if of_client else config.memory_bytes,
        "max_processes": config.max_processes,
        "afterwards": remove,
    }


def _start_supervisor() -> "subprocess.Popen[bytes]":
    """Start a supervisor, which waits for its request."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(SUPERVISOR)],
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the trainer alone, which stops it
    )


@contextmanager
def _endpoint_at_file(access: Access, workspace: Path) -> Iterator[None]:
    """Let a container reach the endpoint through a socket file of its workspace."""
    url = urlsplit(access.url)
    address = (url.hostname or "", url.port or 80)
    relay = Relay(listen_at_file(str(workspace / SOCKET)), lambda: socket.create_connection(address))
    try:
        yield
    finally:
        relay.close()


def _check_platform() -> None:
    """Raise unless this system can limit and end programs."""
    if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children"):
        raise RecipeError(
            "programs with a command need Linux, whose /proc lists the children of processes",
            got=sys.platform,
            remedy="use env.function, or another machine",
        )


def _check_executable(name: str) -> None:
    """Raise unless the executable of a command is found, if it is a name and no path."""
    if "/" not in name and "{" not in name and shutil.which(name, path=search_path(os.environ)) is None:
        raise RecipeError(
            "env.command names a program that is not installed",
            got=name,
            expected="a program in PATH, a path, or {python}",
        )
