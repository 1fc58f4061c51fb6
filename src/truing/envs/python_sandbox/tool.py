"""A Python tool: the model's code runs in a process that can compute and little else.

The program has no network, starts no process and no thread, sends no signal, reads nothing but Python, its
packages and the system's libraries, writes nothing outside a folder that is new for each call and deleted
after it, sees none of Truing's environment variables, and has limits on memory, time, file size and output.
``confine.py`` enforces this by Landlock and seccomp, without privileges. If the kernel cannot do all of this
(Linux before 6.2, another system, a container that forbids Landlock), ``python_tool`` raises.

It does not protect from: a bug in the kernel, since it is not a virtual machine; a disk filled by many
files within the time of a call; asking for the names, sizes and times of files elsewhere, and setting times
and extended attributes of those that we own; secrets inside Python's own folders. Installed packages can be
imported, Truing among them.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from truing.config import FrozenModel, PositiveFloat, PositiveInt
from truing.envs.tools import Tool, ToolError, tool
from truing.errors import TruingError

CONFINE = Path(__file__).with_name("confine.py")

MEGABYTE = 2**20

PROOF = """
import os, socket
escapes = {
    "network": lambda: socket.socket(),
    "fork": os.fork,
    "signal": lambda: os.kill(os.getppid(), 0),
    "read": lambda: open(f"/proc/{os.getppid()}/environ"),
    "write": lambda: open(OUTSIDE, "w"),
}
for name, escape in escapes.items():
    try:
        escape()
    except PermissionError:
        continue
    print(name, "is possible")
"""


class PythonLimits(FrozenModel):
    """The limits of one run."""

    cpu_seconds: PositiveInt = 10
    """Processor time, which a busy machine does not change."""
    seconds: PositiveFloat = 60.0
    """Wall-clock time, for programs that only wait."""
    memory_mb: PositiveInt = 512
    """Address space, Python's own 30 MB among it."""
    file_mb: PositiveInt = 16
    """Size of any one file, and of the output."""
    output_chars: PositiveInt = 10_000
    """Characters of the output that are shown; a note counts the rest."""


def python_tool(limits: PythonLimits | None = None) -> Tool:
    """Return the tool ``python``, after a test of its confinement on this machine.

    Raises:
        TruingError: The confinement fails on this machine.
    """
    chosen = limits or PythonLimits()
    _prove(chosen)

    def python(code: str) -> str:
        """Run a Python program, without network, and read what it prints."""
        return run_python(code, chosen)

    return tool(python)


def run_python(code: str, limits: PythonLimits) -> str:
    """Return the output of a program, including its traceback.

    Raises:
        ToolError: It was stopped; the text has its output until then, and the reason.
    """
    with _folder() as folder, tempfile.TemporaryFile() as output:
        Path(folder, "main.py").write_text(code, encoding="utf-8", errors="surrogatepass")
        try:
            ending = _run(Path(folder), output, limits)
        except subprocess.TimeoutExpired:
            ending = f"stopped after {limits.seconds:g} s"
        printed = _truncated(output, limits.output_chars)
    if ending:
        raise ToolError(f"{printed}\n[{ending}]".lstrip())
    return printed or "(the program printed nothing)"


@contextmanager
def _folder() -> Iterator[str]:
    """Yield a new folder, deleted afterwards at any nesting depth."""
    folder = tempfile.TemporaryDirectory()
    try:
        yield folder.name
    finally:
        try:
            folder.cleanup()
        except RecursionError:  # rmtree calls itself for each level, before Python 3.13
            subprocess.run(["rm", "-rf", folder.name], check=True)


def _run(folder: Path, output: BinaryIO, limits: PythonLimits) -> str:
    """Run the folder's main.py; return why it was killed, empty if it was not."""
    caps = {
        "memory": limits.memory_mb * MEGABYTE,
        "file": limits.file_mb * MEGABYTE,
        "seconds": limits.cpu_seconds,
    }
    # a fixed hash seed: the same program prints the same
    environment = {"PYTHONHASHSEED": "0", "HOME": str(folder), "TMPDIR": str(folder)}
    environment |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    ended = subprocess.run(
        [sys.executable, "-s", "-P", "-B", "-X", "utf8", str(CONFINE), json.dumps(caps)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        timeout=limits.seconds,
    )
    if ended.returncode == -signal.SIGXCPU:
        return f"stopped after {limits.cpu_seconds} s of processor time"
    return f"killed by {signal.Signals(-ended.returncode).name}" if ended.returncode < 0 else ""


def _truncated(output: BinaryIO, most: int) -> str:
    """Return the start of the output, and a note of how much was cut."""
    size = output.seek(0, 2)
    output.seek(0)
    text = output.read(4 * most).decode("utf-8", errors="replace")
    if len(text) <= most and size <= 4 * most:
        return text
    return f"{text[:most]}\n[cut here: the output has {size} bytes]"


def _prove(limits: PythonLimits) -> None:
    """Raise unless every known escape is blocked."""
    with tempfile.NamedTemporaryFile() as outside:
        try:
            output = run_python(f"OUTSIDE = {outside.name!r}\n{PROOF}", limits)
        except ToolError as error:
            output = str(error)
    if output != "(the program printed nothing)":
        raise TruingError(
            "programs cannot be confined on this machine, so there is no python tool",
            got=output,
            expected="Linux 6.2 or newer with Landlock and seccomp, on x86_64 or aarch64",
            remedy="use another machine, or an environment without the python tool",
        )
