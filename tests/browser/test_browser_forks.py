"""An experiment in the browser: arms with their verdicts, links to the forks, and forks with their parent."""

import json

import pytest
from hostile import MARKUP
from playwright.sync_api import expect
from shown import ARMS, experiment
from test_browser_runs import TOO_WIDE
from visiting import served, visiting

from truing.lab.forks.plan import PLAN
from truing.lab.forks.result import error_of
from truing.lab.stats.e_process import min_pairs

pytestmark = pytest.mark.browser

PAIRS = min_pairs(error_of(len(ARMS)))


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    root = tmp_path_factory.mktemp("forks")
    experiment(root, (0.2, 0.0), PAIRS)
    path = root / "run-experiment" / PLAN
    plan = json.loads(path.read_text())
    plan["arms"][1]["because"] = MARKUP
    path.write_text(json.dumps(plan))
    with served(root) as address:
        yield address


def test_the_run_has_its_arms_with_their_verdicts_and_their_forks(visit):
    page = visit.go("#/run?run=run")
    expect(page.get_by_text("with grpo.learning_rate=0.003 the reward")).to_be_visible()
    arms, pairs = page.locator("table:has-text('e-value') tbody tr"), page.locator("details.gap tbody tr")
    expect(arms.nth(0)).to_contain_text("helps")
    expect(arms.nth(0)).to_contain_text("+0.200")
    expect(arms.nth(1)).to_contain_text("no effect is proven")
    expect(arms.nth(1)).to_contain_text(MARKUP)
    expect(pairs).to_have_count(PAIRS)
    pairs.nth(0).get_by_role("link", name="0.700").click()
    page.wait_for_selector('main[data-page="run"] h1:has-text("run-experiment/arm1-pair1")')
    expect(page.get_by_text("fork of run after grpo 2")).to_contain_text("with grpo.learning_rate=0.003")


def test_forks_in_the_list_name_their_parent_and_are_overlaid_with_it(visit):
    page = visit.go("#/runs?filter=arm1-pair2")
    row = page.locator("tr.to")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("fork of run after grpo 2")
    row.get_by_role("link", name="overlay both").click()
    expect(page.locator("tr.to")).to_have_count(2)
    chart = page.locator('figure[aria-label="reward/mean"]')
    expect(chart.locator(".legend span")).to_have_text(["run 0.5", "run-experiment/arm1-pair2 0.71"])
    page.get_by_label("ticked only").uncheck()
    expect(page.locator("tr.to")).to_have_count(1 + 3 * PAIRS)


def test_they_fit_a_phone(board):
    with visiting(board, viewport={"width": 420, "height": 800}) as visit:
        for view in ("#/run?run=run", "#/run?run=run-experiment/arm1-pair1", "#/runs"):
            page = visit.go(view)
            assert page.evaluate(TOO_WIDE) == [], view
