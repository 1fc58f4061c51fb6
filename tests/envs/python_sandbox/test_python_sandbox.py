"""Programs that try to get out, or never end: run for real, and skipped where none can be confined."""

import os
from pathlib import Path

import pytest

from truing.envs.python_sandbox import tool
from truing.envs.python_sandbox.tool import PythonLimits, python_tool, run_python
from truing.envs.tools import ToolEpisode, ToolError
from truing.errors import TruingError
from truing.types.message import AssistantMessage, ToolCall


@pytest.fixture(scope="module", autouse=True)
def _confined():
    try:
        python_tool()
    except TruingError as error:
        pytest.skip(f"SKIPPED: {error}")


def run(code, **limits):
    return run_python(code, PythonLimits(**limits))


def test_what_is_printed_is_the_answer():
    assert run("print(6 * 7, 'é中')") == "42 é中\n"
    assert run("x = 1") == "(the program printed nothing)"


def test_an_exception_is_shown_from_the_programs_own_line():
    said = run("print('so far')\n1 / 0")
    assert said.startswith('so far\nTraceback (most recent call last):\n  File "main.py", line 2')
    assert said.endswith("ZeroDivisionError: division by zero\n")
    assert "SyntaxError" in run("x =")


def test_the_same_program_prints_the_same():
    assert len({run("print({'a', 'b', 'c', 'd'}, hash('x'))") for _ in range(3)}) == 1


def test_the_model_is_informed_and_the_episode_goes_on():
    episode = ToolEpisode([python_tool(PythonLimits(cpu_seconds=1))])
    codes = ("while True: pass", "print(1)")
    said = [
        episode.reply(AssistantMessage(calls=(ToolCall("python", {"code": code}),)))[0]["content"]
        for code in codes
    ]
    assert said == ["Error: [stopped after 1 s of processor time]", "1\n"]


def test_an_endless_loop_is_stopped_and_what_it_printed_is_shown():
    with pytest.raises(ToolError, match=r"^started\n+\[stopped after 1 s of processor time\]"):
        run("print('started', flush=True)\nwhile True: pass", cpu_seconds=1)


def test_a_program_that_ignores_the_signal_is_stopped():
    with pytest.raises(ToolError, match="killed by SIGKILL"):
        run("import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", cpu_seconds=1)


def test_a_program_that_waits_is_stopped():
    with pytest.raises(ToolError, match=r"stopped after 0\.5 s\]"):
        run("import time; time.sleep(60)", seconds=0.5)


@pytest.mark.parametrize("code", ["x = bytearray(10**10)", "x = []\nwhile True: x.append('x' * 10**7)"])
def test_memory_is_bounded(code):
    assert "MemoryError" in run(code, memory_mb=200)


def test_a_crash_of_python_is_reported():
    with pytest.raises(ToolError, match="killed by SIGSEGV"):
        run("import ctypes; ctypes.string_at(0)")


def test_huge_output_is_cut_and_the_cut_is_said():
    said = run("print('x' * 10**6)", output_chars=100)
    assert said == "x" * 100 + "\n[cut here: the output has 1000001 bytes]"
    assert len(run("while True: print('x' * 1000)", file_mb=1)) < 11_000


def test_files_are_bounded():
    assert "File too large" in run("open('f', 'wb').write(bytes(2 * 2**20))", file_mb=1)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.fork()",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.kill(-1, 9)",
        "import socket; socket.create_connection(('127.0.0.1', 80))",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import os; os.chmod('/tmp', 0o777)",
        "import os; print(open(f'/proc/{os.getppid()}/environ').read())",
        "print(open('/etc/passwd').read())",
        "import os; print(os.listdir('/'))",
        "import os; os.mkdir('/tmp/truing-was-here')",
        "import resource; resource.prlimit(1, resource.RLIMIT_AS)",
        "import fcntl, os; fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",  # then SIGKILL
        "import fcntl, os; fcntl.fcntl(os.pipe()[0], 15, bytes(8))",
        "import fcntl, os, struct; fcntl.ioctl(os.pipe()[0], 0x8901, struct.pack('i', os.getppid()))",
        "import fcntl, socket; fcntl.ioctl(socket.socketpair()[0], 0x8902, bytes(4))",
    ],
)
def test_ways_out_are_closed(code):
    assert "PermissionError" in run(code)


def test_no_key_outlives_a_call():
    said = run("import ctypes; print(ctypes.CDLL(None).syscall(248, b'user', b'truing', b'x', 1, -4))")
    assert said == "-1\n" or os.uname().machine != "x86_64"


def test_a_thread_is_refused():
    assert "can't start new thread" in run("import threading; threading.Thread(target=print).start()")


@pytest.mark.parametrize(
    "way", ["open({!r}, 'w')", "os.truncate({!r}, 0)", "os.remove({!r})", "os.rename({!r}, 'x')"]
)
def test_nothing_outside_is_changed(tmp_path, way):
    victim = tmp_path / "victim"
    victim.write_text("whole")
    assert "Error" in run(f"import os\n{way.format(str(victim))}")
    assert victim.read_text() == "whole"


def test_the_environment_is_not_ours(monkeypatch):
    monkeypatch.setenv("TRUING_SECRET", "hunter2")
    said = run("import os; print(dict(os.environ))")
    assert "hunter2" not in said
    assert "PATH" not in said


def test_open_files_are_not_passed_on(tmp_path):
    with open(tmp_path / "open", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        assert "OSError" in run(f"import os; os.write({ours.fileno()}, b'x')")


def test_its_folder_is_writable_and_gone_afterwards():
    said = run(
        "import os; open('f', 'w').write('x'); os.mkdir('d'); print(os.getcwd(), sorted(os.listdir()))"
    )
    folder, _, rest = said.partition(" ")
    assert rest == "['d', 'f', 'main.py']\n"
    assert not Path(folder).exists()


def test_folders_nested_deeper_than_python_can_call_are_removed():
    said = run("import os\nprint(os.getcwd())\nfor _ in range(2000):\n    os.mkdir('d'); os.chdir('d')")
    assert not Path(said.strip()).exists()


def test_code_that_is_no_text_is_reported():
    assert "SyntaxError" in run("x = '\ud800'")


def test_where_confinement_fails_there_is_no_tool(monkeypatch, tmp_path):
    open_door = tmp_path / "confine.py"
    open_door.write_text("exec(open('main.py').read())")
    monkeypatch.setattr(tool, "CONFINE", open_door)
    with pytest.raises(TruingError, match=r"cannot be confined[\s\S]*network is possible"):
        python_tool()


def test_where_confinement_raises_the_program_does_not_run(monkeypatch, tmp_path):
    broken = tmp_path / "confine.py"
    source = Path(tool.__file__).with_name("confine.py").read_text()
    broken.write_text(source.replace("if abi < 3", "if abi < 10**6"))
    monkeypatch.setattr(tool, "CONFINE", broken)
    with pytest.raises(TruingError, match=r"Linux 6\.2 or newer is needed"):
        python_tool()
    assert "ran" not in run("print('ran')")
