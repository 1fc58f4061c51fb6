"""A process that Truing starts ends with it, however it is started."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from folders import ROOT

import truing

POOL = """
import multiprocessing, time
from concurrent.futures import ProcessPoolExecutor
from truing.utils.end_with_parent import end_with_parent

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    pool = ProcessPoolExecutor({processes}, context, initializer=end_with_parent)
    print(*pool.map(abs, [1]), flush=True)
    time.sleep(600)
"""
CHILD = """
import os, subprocess, sys, time
from truing.utils.end_with_parent import child_variables, end_with_parent

if __name__ == "__main__":
    if sys.argv[1:]:
        end_with_parent({seconds})
        {then}
        print(1, "TRUING_PARENT" in os.environ, flush=True)
    else:
        subprocess.Popen([sys.executable, __file__, "child"], env=os.environ | child_variables(), {options})
    time.sleep(600)
"""
LIMIT = 30.0
STARTS = re.compile(r"\b(ProcessPoolExecutor|Popen|context\.Process|elastic_launch)\(")


@pytest.fixture
def start(tmp_path):
    """Run a program until it prints a line; return its process and the line."""
    started = []

    def start(text, **values):
        program = tmp_path / "program.py"
        program.write_text(text.format(**values))
        env = os.environ | {"PYTHONPATH": str(Path(truing.__file__).parents[1])}
        process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True, env=env)
        started.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def end_of(processes):
    """Return the processes that are still there after a while."""
    return psutil.wait_procs(processes, LIMIT)[1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_ends_with_its_program(start, method, number):
    process, _ = start(POOL, processes=2, method=method)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert children
    assert not end_of(children)


def test_a_group_ends_with_the_program_that_started_it(start):
    then = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    process, said = start(CHILD, seconds=0, then=then, options="start_new_session=True")
    assert said == ["1", "False"]  # those that it starts have another parent
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert len(children) == 2
    assert not end_of(children)


def test_a_process_that_leads_no_group_ends_alone(start):
    process, _ = start(CHILD, seconds=0, then="pass", options="")
    children = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    assert not end_of(children)


def test_a_process_may_end_by_itself_after_sigterm(start, tmp_path):
    then = f"""
        import signal
        def leave(*_):
            open({str(tmp_path / "left")!r}, "w").close()
            os._exit(0)
        signal.signal(signal.SIGTERM, leave)"""
    process, _ = start(CHILD, seconds=20.0, then=then.strip(), options="start_new_session=True")
    children = psutil.Process(process.pid).children()
    process.kill()
    assert not end_of(children)
    assert (tmp_path / "left").exists()


def test_a_process_that_ignores_sigterm_is_killed(start):
    then = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    process, _ = start(CHILD, seconds=0.5, then=then, options="start_new_session=True")
    children = psutil.Process(process.pid).children()
    process.kill()
    assert not end_of(children)


def test_a_parent_that_ended_before_the_child_looked(tmp_path):
    """The id is that of a parent that has gone, not of whoever is the parent at the call."""
    program = tmp_path / "program.py"
    program.write_text("from truing.utils.end_with_parent import *\nend_with_parent()\ntime.sleep(600)")
    env = {"PYTHONPATH": str(Path(truing.__file__).parents[1]), "TRUING_PARENT": "1999999"}
    process = subprocess.Popen([sys.executable, program], env=os.environ | env)
    assert process.wait(LIMIT) == -signal.SIGKILL


def test_a_process_that_nobody_started_for_itself_stays():
    from truing.utils.end_with_parent import end_with_parent

    end_with_parent()
    time.sleep(0.1)  # and is here to say so


def test_every_process_that_is_started_ends_with_its_parent():
    """The watchdog and a program's supervisor look by themselves; environments do in ``process_main``."""
    files = {path for path in (ROOT / "src").rglob("*.py") if STARTS.search(path.read_text())}
    without = {path.name for path in files if not re.search(r"end_with_parent", path.read_text())}
    assert len(files) >= 6
    assert without == {"watchdog.py", "worker_process.py", "command_program.py", "__main__.py"}
