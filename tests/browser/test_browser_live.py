"""A run that trains while somebody looks: it appears, goes on and ends, and no page is loaded again."""

import os
import signal
import subprocess
import sys

import pytest
import tomli_w
from folders import ROOT
from playwright.sync_api import expect
from runs import MINI
from visiting import visiting

SOURCE = ROOT / "src"
STEPS = 40

COUNT = "Array.from(document.querySelector('figure[aria-label=Reward] .plot').data?.[0].y ?? [])"


@pytest.fixture
def home(tmp_path):
    """The board as its command serves it, over a folder in which nothing lies yet."""
    (tmp_path / "runs").mkdir()
    words = [sys.executable, "-m", "truing", "board", str(tmp_path / "runs"), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            entries = [process.stdout.readline() for _ in range(2)]
            assert entries[0].startswith("0 runs in ")
            yield entries[1].split()[2]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def environment():
    return os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def test_a_run_appears_goes_on_and_ends_without_a_reload(home, tmp_path):
    grpo = {"steps": STEPS, "prompts_per_step": 16, "group_size": 8, "learning_rate": 1e-3}
    recipe = MINI | {"name": "now", "grpo": grpo, "doctor": {"budget": 0.1}}
    (tmp_path / "now.toml").write_text(tomli_w.dumps(recipe))
    words = [sys.executable, "-m", "truing", "train", str(tmp_path / "now.toml"), "--out"]
    with visiting(home) as overview, visiting(home) as looking:
        page = overview.go()
        expect(page.locator("main")).to_contain_text("No run yet")
        page.evaluate("window.kept = 1")
        train = subprocess.Popen(
            [*words, str(tmp_path / "runs" / "now")],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            line = page.locator("tbody tr")
            expect(line).to_have_count(1, timeout=60_000)
            expect(line.locator(".state")).to_have_text("running", timeout=60_000)
            expect(line.locator('[role="progressbar"]')).to_have_attribute(
                "aria-label", "grpo", timeout=60_000
            )
            seen = {line.locator('[role="progressbar"]').get_attribute("aria-valuenow")}
            run = looking.go("#/run?run=now")
            run.evaluate("window.kept = 1")
            run.wait_for_function(
                f"() => document.querySelector('figure[aria-label=Reward] .plot')?.data && {COUNT}.length"
            )
            grown = [run.evaluate(f"{COUNT}.length")]
            run.wait_for_function(f"(n) => {COUNT}.length > n", arg=grown[0], timeout=60_000)
            expect(line.locator(".state")).to_have_text("finished", timeout=120_000)
            seen.add(line.locator('[role="progressbar"]').get_attribute("aria-valuenow"))
        finally:
            assert train.wait(120) == 0
        expect(run.locator(".state")).to_have_text("finished")
        run.wait_for_function(f"(n) => {COUNT}.length === n", arg=STEPS)
        assert len(seen) == 2
        assert seen >= {str(STEPS)}
        for each in (page, run):
            assert each.evaluate("window.kept") == 1  # it was never loaded again
            expect(each.locator(".live")).to_have_text("live")
