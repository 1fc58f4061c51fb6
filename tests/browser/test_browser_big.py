"""A long run on the board opens in a second or so, and a look into it takes no longer than into a short one.

Of 10^4 steps, and of 10^5 (slow: making the run takes most of a minute). Times are of whole
clicks, in the browser, on a machine that may be busy: bounds are generous.
"""

import subprocess
import sys
import time

import pytest
from visiting import served, visiting

SIZES = [pytest.param(10_000, id="10^4"), pytest.param(100_000, id="10^5", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=SIZES)
def steps(request):
    return request.param


@pytest.fixture(scope="module")
def board(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("big")
    words = [
        sys.executable,
        "-m",
        "dev.measure.big_run",
        str(folder / "big"),
        "--steps",
        str(steps),
        "--live",
        "3",
    ]
    subprocess.run(words, check=True, capture_output=True)
    with served(folder) as address:
        yield address


class Timed:
    """Seconds of what stands under it."""

    def __enter__(self):
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begun


def wait_for_chart(page):
    """Wait for the chart of the reward."""
    page.locator("figure[aria-label=Reward]").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('figure[aria-label=Reward] .plot').data")


def test_a_long_run_is_looked_at_as_fast_as_a_short_one(board, steps):
    took = {}
    with visiting(board) as visit:
        with Timed() as took["overview"]:
            page = visit.go(wait="tbody tr .state")
        with Timed() as took["run"]:
            page.locator("tbody a").first.click()
            wait_for_chart(page)
        points = page.evaluate(
            "document.querySelector('figure[aria-label=Reward] .plot').data.map((each) => each.x.length)"
        )
        assert max(points) <= 600
        with Timed() as took["step"]:
            visit.go(f"#/step?run=big&stage=grpo&step={steps // 2}")
        with Timed() as took["sample"]:
            page.locator("tbody a").first.click()
            page.wait_for_selector(".t[data-t]")
        with Timed() as took["samples"]:
            visit.go("#/samples?run=big")
        with Timed() as took["prompts"]:
            visit.go("#/tasks?run=big")
    print({name: round(each.seconds, 2) for name, each in took.items()})
    assert max(each.seconds for each in took.values()) < 10, {
        name: each.seconds for name, each in took.items()
    }


def test_no_spike_is_lost_where_a_point_is_many_steps(board, steps):
    with visiting(board) as visit:
        page = visit.go("#/run?run=big")
        wait_for_chart(page)
        low, high = page.evaluate(
            """() => { const [low, high] = document.querySelector('figure[aria-label=Reward] .plot').data;
                 return [Math.min(...low.y), Math.max(...high.y)]; }"""
        )
        text = page.locator("figure[aria-label=Reward]").inner_text()
    assert f"each point: mean of {-(-steps // 600)} steps" in text
    assert (low, high) == (0.0, 1.0)
