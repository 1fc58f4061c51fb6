"""The actors of ranks and engines, here without Ray around them: what they start, follow and end."""

import signal
import subprocess
import sys
import time

import psutil
import pytest
from ray_cluster import fake_vllm_python

from truing.cluster.engine_actor import EngineActor
from truing.cluster.rank_actor import RankActor
from truing.config import resolve
from truing.engines.vllm.client import VllmClient

pytestmark = pytest.mark.integration

ENDING = "from truing.utils.end_with_parent import end_with_parent\nend_with_parent()\n"
"""What a rank does first, as `truing train` does."""

WAITING = """
import os, signal, sys, time
print("rank", os.environ["RANK"], os.getcwd(), flush=True)
print("ready", file=sys.stderr, flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.fixture
def rank(tmp_path):
    """An actor whose process waits for Ctrl-C."""
    actor = RankActor()

    def start(program):
        actor.start(["-c", program], str(tmp_path), {"RANK": "3"}, tmp_path / "output")
        return actor

    yield start
    actor.stop()


def report_of(actor, done):
    """What an actor reports until ``done`` says that it is enough: its streams, and the exit code."""
    streams, end = {"stdout": b"", "stderr": b""}, time.monotonic() + 60
    while time.monotonic() < end:
        report = actor.poll(with_output=True)
        for name, data in report.output.items():
            streams[name] += data
        if done(streams, report.exit_code):
            return streams, report.exit_code
    raise AssertionError(streams)


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def has_gone(process):
    """Whether a process has ended; where nobody waits for it, its number stays."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_ready(streams, code):
    return b"ready" in streams["stderr"]


def has_ended(streams, code):
    return code is not None


def test_a_rank_runs_in_the_folder_with_its_variables_and_its_output_is_reported_once(rank, tmp_path):
    actor = rank(WAITING)
    streams, code = report_of(actor, is_ready)
    assert code is None
    assert streams["stdout"].decode() == f"rank 3 {tmp_path}\n"
    assert actor.poll(with_output=True).output == {"stdout": b"", "stderr": b""}
    assert (tmp_path / "output" / "stdout").read_bytes() == streams["stdout"]


def test_ctrl_c_reaches_a_rank_also_where_ray_blocks_it(rank):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        actor = rank(WAITING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    report_of(actor, is_ready)
    actor.interrupt()
    assert report_of(actor, has_ended)[1] == 7
    actor.interrupt()  # of one that has ended is nothing


def test_the_signal_that_ended_a_rank_is_its_exit_code(rank):
    actor = rank("import os; os.kill(os.getpid(), 9)")
    assert report_of(actor, has_ended)[1] == -9


def test_what_a_rank_started_ends_with_it(rank):
    sleep = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
    said = "print(child.pid, flush=True); print('ready', file=sys.stderr, flush=True)"
    actor = rank(f"import subprocess, sys; child = {sleep}; {said}; child.wait()")
    streams, _ = report_of(actor, is_ready)
    child = psutil.Process(int(streams["stdout"]))
    actor.stop()
    wait_until(lambda: has_gone(child))


def test_a_rank_ends_with_its_actor(tmp_path):
    waiting, folder = ENDING + WAITING, str(tmp_path)
    program = (
        "import sys\nfrom pathlib import Path\nfrom truing.cluster.rank_actor import RankActor\n"
        "actor = RankActor()\n"
        f"actor.start(['-c', {waiting!r}], {folder!r}, {{'RANK': '0'}}, Path({folder!r}))\n"
        "while b'ready' not in actor.poll(True).output['stderr']: pass\n"
        "print(actor._process.pid, flush=True)\nimport os\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    pid, since = int(done.stdout), time.monotonic()
    wait_until(lambda: not psutil.pid_exists(pid) or has_gone(psutil.Process(pid)))
    assert time.monotonic() - since < 20  # by itself it ends later


def test_a_server_that_ends_starts_again_at_its_address(tmp_path, mini):
    recipe = resolve(
        mini(engine={"kind": "vllm", "count": 1, "python": str(fake_vllm_python(tmp_path)), "timeout": 120})
    )
    actor = EngineActor()
    url = actor.start(recipe.model_dump(mode="json", exclude_none=True), "cpu", tmp_path / "engine.log")
    client = VllmClient(url, 60.0)
    try:
        assert client.is_alive()
        assert actor.poll().notes == ()
        actor._process._process.kill()
        (note,) = actor.poll().notes
        assert note == f"the vLLM server {url} ended with exit code -9; it starts again"
        wait_until(client.is_alive)
    finally:
        client.close()
        actor.stop()
    assert not VllmClient(url, 5.0).is_alive()
