"""How a program ended: its outcome, or the error that says why it has none."""

from collections.abc import Mapping
from typing import Any

from truing.envs.program.config import ProcessConfig
from truing.errors import ProgramCrash, ProgramError
from truing.types.rollout import Task
from truing.utils.parse import is_deep, parse_finite_json

SHOWN = 2000
"""Characters of the end of a program's errors in an error."""

TEXT = 4000
"""Characters of the end of a program's output in its outcome."""


BY_HAND = (
    "its errors say why; run the command by hand in a copy of the folder, against another model's API;"
    " env.ok_codes has exit codes that are no crash"
)
"""What to do about a crash."""

FIRST_OF_SIGNALS = 128
"""Exit codes from here on say that a signal ended a program, in a shell or a container."""


def outcome_of(
    result: Mapping[str, Any], config: ProcessConfig, task: Task, workspace: str
) -> dict[str, Any]:
    """Return the outcome of a program.

    Args:
        result: the answer of its supervisor.
        config: of the programs.
        task: the program's.
        workspace: a path that differs by run, which is a dot in the outcome.

    Raises:
        ProgramError: It did not start, exceeded a limit, or crashed.
    """
    what = f"the program of task {task.task_id!r}"
    if result["ended"] is not None:
        raise _limit_error(result, config, what)
    stdout = result["stdout"].replace(workspace, ".")
    outcome = {"exit_code": result["code"], "output": last_value(stdout), "text": stdout[-TEXT:]}
    if result["code"] not in config.ok_codes:
        raise _crash(result, config, what, outcome)
    return outcome


def last_value(stdout: str) -> Any:
    """Return the last line of an output as JSON; None if it is not JSON, or nested too deeply."""
    try:
        value = parse_finite_json(stdout.rstrip().rsplit("\n", 1)[-1].strip().encode())
    except ValueError:
        return None
    return None if is_deep(value) else value


def _limit_error(result: Mapping[str, Any], config: ProcessConfig, what: str) -> ProgramError:
    """Return the error of a program that did not start, or was ended."""
    ended = result["ended"]
    if ended == "start":
        return ProgramError(
            f"{what} did not start",
            got=result["error"],
            expected=f"an executable file in its workspace or in PATH: {config.command!r:.500}",
            remedy="a workspace has a copy of env.folder; {python} is this interpreter",
        )
    if ended == "stop":
        return ProgramError(f"{what} was stopped, as the run ends")
    limits = {
        "timeout": (f"ran longer than env.timeout = {config.timeout:g} s", "allow it more seconds"),
        "max_processes": (
            f"had more than env.max_processes = {config.max_processes} processes",
            "start fewer, or raise it",
        ),
        "left": (
            "left processes that cannot be ended",
            "programs may not start processes of another user, as by sudo",
        ),
        "long_paths": ("made folders whose paths are too long for the system", "nest fewer folders"),
        "max_disk": (f"filled more than env.max_disk = {config.max_disk}", "write less, or raise it"),
    }
    happened, remedy = limits[ended]
    return ProgramError(f"{what} {happened}", got=_last_lines(result), remedy=remedy)


def _crash(
    result: Mapping[str, Any], config: ProcessConfig, what: str, outcome: Mapping[str, Any]
) -> ProgramError:
    """Return the error of a program that crashed; one that no signal ended has left an outcome."""
    code, remedy = result["code"], BY_HAND
    if config.memory is not None and ("MemoryError" in result["stderr"] or code < 0 or code == 137):
        remedy = f"if it needs more memory than env.memory = {config.memory}, raise it; else {remedy}"
    happened = f"crashed by signal {-code}" if code < 0 else f"crashed with exit code {code}"
    kind = ProgramCrash if 0 <= code < FIRST_OF_SIGNALS else ProgramError
    error = kind(f"{what} {happened}", got=_last_lines(result), remedy=remedy)
    if isinstance(error, ProgramCrash):
        error.outcome = {**outcome, "crash": happened}
    return error


def _last_lines(result: Mapping[str, Any]) -> str:
    """Return the end of a program's errors, or of its output if it wrote none."""
    for stream in ("stderr", "stdout"):
        if text := result[stream].strip():
            return f"the end of its {stream}:\n{text[-SHOWN:]}"
    return "no output"
