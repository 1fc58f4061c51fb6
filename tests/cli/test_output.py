"""Output that is lost is not a result: exit code 141 if its reader closed it, 2 if it cannot be written."""

import os
import signal
import subprocess
import sys

import pytest

TRUING = [sys.executable, "-m", "truing"]


def run(*words, shell):
    """Run a command in a shell line, in which $T is truing; return the process."""
    line = shell.replace("$T", " ".join([*TRUING, *words]))
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("$T > /dev/null", 0),
        ("$T | sleep 0", 141),
        ("$T 2>&1 | sleep 0", 141),
        ("$T > /dev/full", 2),
        ("$T >&-", 2),
        ("$T nothing 2> /dev/full", 2),
        ("$T --unknown | sleep 0", 2),
    ],
)
def test_output_that_is_lost_is_never_the_code_of_a_result(shell, code):
    done = run("rules", shell=shell)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("error: " in done.stderr) == (shell in ("$T > /dev/full", "$T >&-"))


SCRIPT = """
import os, signal, sys
from truing.utils.process_state import no_early_exit
with no_early_exit("training"):
    {line}
print("went on")
"""


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("os._exit(0)", 2, "os._exit(0) at <string>:5 ended training before it was done"),
        ("os._exit(7)", 7, ""),
        ("sys.exit(0)", 1, "training was ended by SystemExit before it was done"),
        ("raise SystemExit", 1, "training was ended by SystemExit before it was done"),
        ("sys.exit(5)", 5, ""),
        ("os.fork() or os._exit(0); print(os.waitstatus_to_exitcode(os.wait()[1]))", 0, ""),
        ("pass", 0, ""),
    ],
)
def test_code_of_others_cannot_end_a_run_as_if_it_were_done(line, code, text):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(line=line)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert done.stdout.endswith("went on\n") == (code == 0)


@pytest.mark.integration
def test_a_run_whose_output_closes_is_trained_to_its_end(tmp_path):
    out = tmp_path / "run"
    overrides = ['stages=["grpo"]', "grpo.steps=2", "eval.tasks=4", "eval.base=false"]
    process = subprocess.Popen(
        [*TRUING, "train", "tiny", *overrides, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    process.stdout.close()
    assert process.wait(300) == 128 + signal.SIGPIPE
    assert '"kind": "finished"' in (out / "events.jsonl").read_text()


@pytest.mark.integration
def test_a_reward_that_ends_its_process_does_not_end_a_run_well(tmp_path):
    (tmp_path / "rewards.py").write_text("import os\n\ndef leave(rollout, task):\n    os._exit(0)\n")
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "q{i}", "answer": "{i}"}}\n' for i in range(40))
    )
    keys = {
        "stages": '["grpo"]',
        "env": '{name = "dataset", data = "rows.jsonl", rewards = {leave = {kind = "rewards:leave"}}}',
        "eval.tasks": "4",
    }
    words = [f"{key}={value}" for key, value in keys.items()]
    done = subprocess.run(
        [*TRUING, "train", "tiny", *words, "--out", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "os._exit(0) at" in done.stderr
    assert "rewards.py:4 ended training before it was done" in done.stderr
