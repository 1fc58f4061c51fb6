"""A program of a command: its arguments and environment variables, and what its end says."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truing.envs.program.config import ProgramConfig
from truing.envs.program.workspace import OWN, TASK_FILE
from truing.envs.program_env import Access
from truing.errors import ProgramError, RecipeError
from truing.types.rollout import Task
from truing.utils.parse import parse_finite_json

SUPERVISOR = Path(__file__).with_name("supervisor.py")

GRACE = 60.0
"""Seconds beyond the time limit in which a supervisor must have ended its program."""

SHOWN = 2000
"""Characters of a program's errors in an error."""

TEXT = 4000
"""Characters of the end of a program's output that are on record."""

LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")


class CommandProgram:
    """Starts a command for each rollout."""

    def __init__(self, config: ProgramConfig) -> None:
        assert config.command is not None
        self._config = config
        self._running = set[subprocess.Popen[bytes]]()
        self._lock = threading.Lock()
        _check_platform()
        _check_passed(config)
        _check_executable(config.command[0])

    def run(self, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Run the command to its end, and return its outcome.

        Raises:
            ProgramError: It did not start, exceeded a limit, or crashed.
        """
        config = self._config
        assert config.command is not None
        variables = program_variables(config, access, str(workspace), os.environ)
        request = {
            "command": [filled(part, task) for part in config.command],
            "variables": variables,
            "folder": str(workspace),
            "workspace": str(workspace),
            "timeout": config.timeout,
            "memory": config.memory_bytes,
            "max_processes": config.max_processes,
            "max_output": config.max_output,
            "max_disk": config.disk_bytes,
            "afterwards": None,
            "parent": os.getpid(),
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
        }
        result = self._supervised(request, task)
        if result["ended"] is not None or result["code"] not in config.ok_codes:
            raise _error(result, config, task)
        stdout = result["stdout"].replace(str(workspace), ".")  # another path in each run
        return {"exit_code": result["code"], "output": last_value(stdout), "text": stdout[-TEXT:]}

    def stop(self) -> None:
        """End all programs that run."""
        with self._lock:
            for supervisor in self._running:
                supervisor.terminate()

    def _supervised(self, request: Mapping[str, Any], task: Task) -> dict[str, Any]:
        """Return the answer of a supervisor to a request."""
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR)],
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the trainer alone, which stops it
        )
        with self._lock:
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


def program_variables(
    config: ProgramConfig, access: Access, workspace: str, trainer: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of a program.

    Args:
        config: of the programs.
        access: to the endpoint.
        workspace: its path, as the program sees it.
        trainer: the trainer's environment, of which it gets what it needs to start and what the recipe names.
    """
    folders = [os.path.dirname(sys.executable), trainer.get("PATH", os.defpath)]
    own = {name: trainer[name] for name in (*LOCALE, "VIRTUAL_ENV") if name in trainer}
    passed = {name: trainer[name] for name in config.pass_variables}
    return {
        "LANG": "C.UTF-8",
        **own,
        "PATH": os.pathsep.join(folders),
        "HOME": workspace,
        "TMPDIR": f"{workspace}/{OWN}/tmp",
        "PYTHONHASHSEED": "0",  # the order of sets would differ by run, and with it prompts
        "NO_PROXY": "127.0.0.1,localhost",
        **passed,
        **config.variables,
        "OPENAI_BASE_URL": f"{access.url}/v1",
        "OPENAI_API_BASE": f"{access.url}/v1",
        "OPENAI_API_KEY": access.key,
        "ANTHROPIC_BASE_URL": access.url,
        "ANTHROPIC_API_KEY": access.key,
        "TRUING_TASK_FILE": f"{workspace}/{TASK_FILE}",
    }


def filled(argument: str, task: Task) -> str:
    """Return an argument with its placeholders filled.

    Another word in braces stays as it is.
    """
    asked = [message["content"] for message in task.messages if message["role"] == "user"]
    values = {"task": asked[-1] if asked else "", "id": task.task_id, "python": sys.executable}
    return re.sub(r"\{(task|id|python)\}", lambda found: values[found[1]], argument)


def last_value(stdout: str) -> Any:
    """Return the last line of an output as JSON; None if it is not JSON."""
    lines = stdout.rstrip().rsplit("\n", 1)
    try:
        return parse_finite_json(lines[-1].strip().encode())
    except ValueError:
        return None


def _error(result: Mapping[str, Any], config: ProgramConfig, task: Task) -> ProgramError:
    """Return the error of a program that exceeded a limit or crashed."""
    ended, what = result["ended"], f"the program of task {task.task_id!r}"
    if ended == "start":
        return ProgramError(
            f"{what} did not start",
            got=result["error"],
            expected=f"an executable file in its workspace or in PATH: {config.command!r:.500}",
            remedy="env.folder is what a workspace has; {python} is this interpreter",
        )
    if ended == "stop":
        return ProgramError(f"{what} was stopped, as the run ends")
    endings = {
        "timeout": (f"ran longer than env.timeout = {config.timeout:g} s", "allow it more seconds"),
        "max_processes": (
            f"had more than env.max_processes = {config.max_processes} processes",
            "start fewer, or raise it",
        ),
        "max_disk": (f"filled more than env.max_disk = {config.max_disk}", "write less, or raise it"),
    }
    happened, remedy = endings.get(ended) or _crash(result, config)
    return ProgramError(f"{what} {happened}", got=_last_lines(result), remedy=remedy)


def _crash(result: Mapping[str, Any], config: ProgramConfig) -> tuple[str, str]:
    """Return how a program crashed, and the remedy."""
    code, remedy = result["code"], "its errors say why; env.ok_codes has exit codes that are no crash"
    if config.memory is not None and ("MemoryError" in result["stderr"] or code < 0):
        remedy = f"if it needs more memory than env.memory = {config.memory}, raise it; else {remedy}"
    if code < 0:
        return f"crashed by signal {-code}", remedy
    return f"crashed with exit code {code}", remedy


def _last_lines(result: Mapping[str, Any]) -> str:
    """Return the end of a program's errors, or of its output if it wrote none."""
    for stream in ("stderr", "stdout"):
        if text := result[stream].strip():
            return f"the end of its {stream}:\n{text[-SHOWN:]}"
    return "no output"


def _check_platform() -> None:
    """Raise unless this system can limit and end programs."""
    if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children"):
        raise RecipeError(
            "programs with a command need Linux, whose /proc lists the children of processes",
            got=sys.platform,
            remedy="use env.function, or another machine",
        )


def _check_passed(config: ProgramConfig) -> None:
    """Raise unless the trainer has the variables that programs get from it."""
    if missing := [name for name in config.pass_variables if name not in os.environ]:
        raise RecipeError(
            "env.pass_variables names variables that are not set",
            got=", ".join(missing),
            expected="variables of the environment that truing is run in",
        )


def _check_executable(name: str) -> None:
    """Raise unless the executable of a command is found, if it is a name and no path."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    if "/" not in name and "{" not in name and shutil.which(name, path=path) is None:
        raise RecipeError(
            "env.command names a program that is not installed",
            got=name,
            expected="a program in PATH, a path, or {python}",
        )
