"""Programs that do harm: each ends with an error that says what it did, and leaves no process behind."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from truing.envs.program import command_program
from truing.envs.program.supervisor.disk import Disk
from truing.errors import ProgramError


def processes_of(mark):
    """The processes whose command line has a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def gone(mark, seconds=5.0):
    """Whether no process with a mark is left soon."""
    end = time.monotonic() + seconds
    while processes_of(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_of(mark)


DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", MARK])
        time.sleep(60)
    os._exit(0)
time.sleep(0.3)
"""


def test_a_daemon_ends_with_its_program(make, run):
    mark = f"daemon-{os.getpid()}"
    code = (
        f"MARK = {mark!r}\n{DAEMON}import subprocess\nprint(subprocess.run(['pgrep', '-f', MARK]).returncode)"
    )
    assert run(make(code))["output"] == 0  # it ran
    assert gone(mark, 0.0)


def test_a_daemon_ends_whatever_folders_its_program_makes(make, run):
    mark = f"deep-{os.getpid()}"
    nest = "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\ntime.sleep(30)"
    with pytest.raises(ProgramError, match="paths are too long"):
        run(make(f"MARK = {mark!r}\n{DAEMON}{nest}"))
    assert gone(mark, 0.0)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A supervisor that fails while it watches."""
    folder = tmp_path / "supervisor"
    shutil.copytree(command_program.SUPERVISOR, folder)
    (folder / "disk.py").write_text(
        "class Disk:\n    def __init__(self, *_): self.seen = 0\n"
        "    def exceeded(self, *_):\n        self.seen += 1\n        assert self.seen < 5\n"
    )
    monkeypatch.setattr(command_program, "SUPERVISOR", folder)


def test_a_daemon_ends_though_its_supervisor_fails(make, run, broken):
    mark = f"fails-{os.getpid()}"
    with pytest.raises(ProgramError, match="the process that watches") as caught:
        run(make(f"MARK = {mark!r}\n{DAEMON}time.sleep(30)"))
    assert "AssertionError" in caught.value.got
    assert gone(mark, 0.0)


def test_many_files_do_not_hide_the_time_limit(tmp_path):
    for i in range(3000):
        (tmp_path / str(i)).touch()
    disk = Disk(str(tmp_path), 10**9)
    began = time.monotonic()
    assert disk.exceeded(0.0) is None
    assert time.monotonic() - began < 0.05
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    assert Disk(str(tmp_path), 50_000).exceeded(60.0) == "max_disk"


def test_a_program_that_ignores_signals_and_never_ends(make, run):
    code = "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
    began = time.monotonic()
    with pytest.raises(ProgramError, match=r"longer than env\.timeout = 0\.5 s") as caught:
        run(make(code + "print('here', flush=True)\nwhile True: time.sleep(1)", timeout=0.5))
    assert "here" in caught.value.got
    assert time.monotonic() - began < 5


def test_a_flood_of_output_keeps_its_end(make, run):
    code = """
import sys
for _ in range(300): sys.stdout.write("x" * 100_000)
for _ in range(300): sys.stderr.write("x" * 100_000)
print("\\n7")
"""
    env = make(code, max_output=1000)
    outcome = run(env)
    assert outcome["output"] == 7
    assert len(outcome["text"]) == 1000


def test_a_flood_does_not_hide_the_time_limit(make, run):
    with pytest.raises(ProgramError, match="timeout"):
        run(make("while True: print('x' * 10_000)", timeout=0.5))


@pytest.mark.parametrize("in_sessions", [False, True])
def test_a_program_that_forks_without_end(make, run, in_sessions):
    mark = f"forks-{os.getpid()}-{in_sessions}"
    code = f"""
import os, time
for _ in range(9):  # 512 processes: enough to be too many, and no harm if nothing ends them
    if os.fork() == 0 and {in_sessions}:
        os.setsid()
time.sleep(60)
"""
    with pytest.raises(ProgramError, match="max_processes = 20"):
        run(make(command=["{python}", "-c", code, mark], max_processes=20))
    assert gone(mark, 0.0)


@pytest.mark.parametrize("size", [30_000_000, 1_000_000])
def test_a_program_that_fills_the_disk(make, run, size):
    code = f"""
import os, time
for i in range({60_000_000 // size}):
    with open(f"file{{i}}", "wb") as file: file.write(os.urandom({size}))
time.sleep(20)
"""
    with pytest.raises(ProgramError, match=r"env\.max_disk = 0\.02GB|File too large"):
        run(make(code, max_disk="0.02GB"))


def test_a_workspace_that_is_too_large_at_the_end_is_an_error(make, run):
    code = "import os\nfor i in range(3): open(f'file{i}', 'wb').write(os.urandom(900_000))"
    with pytest.raises(ProgramError, match="max_disk"):
        run(make(code, max_disk="0.001GB"))


def test_a_program_that_takes_too_much_memory(make, run):
    env = make("x = bytearray(600_000_000)", memory="0.3GB")
    with pytest.raises(ProgramError, match=r"exit code 1(?s:.*)MemoryError(?s:.*)env\.memory = 0\.3GB"):
        run(env)
    assert run(make("x = bytearray(100_000_000)", memory="0.3GB"))["exit_code"] == 0


def test_many_programs_at_once(make, run):
    env = make("import time; time.sleep(0.3); print(1)")
    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(lambda index: run(env, f"many/{index}"), range(40)))
    assert [outcome["output"] for outcome in outcomes] == [1] * 40


def test_stop_ends_all_programs(make, run):
    env = make("import time; time.sleep(60)")
    timer = threading.Timer(0.5, env.stop)
    timer.start()
    for _ in range(2):  # what runs, and what would start
        with pytest.raises(ProgramError, match="was stopped"):
            run(env)
    env = make("print(1)")
    env.stop()
    env.begin_collection()
    assert run(env)["output"] == 1


TRAINER = """
import sys
from truing.envs import make_env
from truing.envs.program_env import Access
env = make_env("program", {"data": sys.argv[1], "rewards": {"r": {"kind": "exact"}}, "command":
    ["{python}", "-c", "import os, time; os.fork() or os.setsid(); print('up', flush=True); time.sleep(60)",
     sys.argv[2]]})
print("starts", flush=True)
env.run(env.tasks("train")[0], Access("http://127.0.0.1:9", "k"), "r")
"""


def test_a_program_ends_with_a_trainer_that_is_killed(make, tmp_path):
    make()  # writes the rows
    mark = f"orphan-{os.getpid()}"
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path / "rows.jsonl"), mark],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert trainer.stdout.readline() == b"starts\n"
    end = time.monotonic() + 10
    while len(processes_of(mark)) < 3 and time.monotonic() < end:  # the trainer has it too
        time.sleep(0.05)
    assert len(processes_of(mark)) == 3
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    trainer.stdout.close()
    assert gone(mark, 3.0)
    assert len(list(tmp_path.glob("truing-programs-*"))) == 1  # stays: security.md says so
