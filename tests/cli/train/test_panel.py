"""The panel of `truing train`, on a terminal that is one."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest


def on_a_terminal(words, columns=80):
    """Run the program with stderr on a terminal: what it shows there, what it prints, and its exit code."""
    master, slave = pty.openpty()
    env = os.environ | {
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "LINES": "40",
        "OMP_NUM_THREADS": "1",
    }
    program = [sys.executable, "-m", "truing", *map(str, words)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=slave, env=env) as process:
        os.close(slave)
        shown = bytearray()
        try:
            while part := os.read(master, 1 << 16):
                shown += part
        except OSError:  # the program has let its terminal go
            pass
        printed = process.stdout.read()
    os.close(master)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()), printed.decode(), process.returncode


@pytest.mark.slow
def test_on_a_terminal_the_panel_stands_below_the_lines_and_stays(toml, tmp_path):
    words = ("train", toml(), "sft.steps=40", "--out", tmp_path / "run", "--json")
    shown, printed, code = on_a_terminal(words)
    assert code == 0
    assert json.loads(printed)["run"] == str(tmp_path / "run")
    assert "mini · running" in shown
    assert shown.index("after_grpo: reward") < shown.rindex("╭─ ")
    last = shown[shown.rindex("╭─ mini · finished ─") :]
    assert re.search(r"reward +\d\.\d{3} \[-?\d\.\d{3}, \d\.\d{3}\] \(assumes normal rewards\) last 3 ", last)
    assert "grpo 3/3" in last
    assert max(map(len, last.splitlines())) <= 80
    assert last.endswith("╯\r\n\x1b[?25h")
    assert "s left" not in last
    assert "trained tokens" not in shown
