"""A run whose reward is hacked: its chart, its card, and the answers beside the second grader's word."""

import pytest
from hostile import MARKUP
from playwright.sync_api import expect
from shown import graded, opened_run, write
from test_browser_runs import TOO_WIDE
from visiting import DRAWN, TOLD, served, visiting

pytestmark = pytest.mark.browser

TASKS = 30
PAID, REFUSED = [1.0] * TASKS, [float(i < 2) for i in range(TASKS)]


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    root = tmp_path_factory.mktemp("hacked")
    with opened_run(root / "hacked", stages=["grpo"]) as writer:
        writer.write_event("stage", stage="grpo", steps=4, first_step=0)
        writer.write_event("eval", **graded("base", REFUSED, REFUSED))
        for step in range(4):
            write(writer, step)
        answers = [f"{MARKUP} {i}" for i in range(TASKS)]
        writer.write_event("eval", **graded("after_grpo", PAID, REFUSED, step=4, answers=answers))
        writer.write_event("finished")
    with served(root) as address:
        yield address


def test_the_chart_has_the_second_grader_beside_the_paid_reward(visit):
    page = visit.go("#/run?run=hacked")
    page.wait_for_function(DRAWN)
    chart = page.evaluate(TOLD)["Reward"]
    traces = {each["name"]: each for each in chart["traces"]}
    assert (traces["evaluation"]["x"], traces["second grader"]["x"]) == ([0, 4], [0, 4])
    assert traces["second grader"]["y"] == pytest.approx([2 / TASKS] * 2)
    assert min(traces["second grader"]["error"]["array"]) > 0
    assert chart["names"][1].startswith("Mean reward that eval.grader gives")


def test_the_card_says_that_the_reward_is_hacked_and_leads_to_the_refused_answers(visit):
    page = visit.go("#/run?run=hacked")
    card = page.get_by_label("second grader")
    expect(card).to_contain_text("The reward is hacked")
    expect(card).to_contain_text("paid +0.933")
    expect(card.locator("tbody tr")).to_have_count(5)
    card.get_by_role("link", name="28 of after grpo").click()
    page.wait_for_selector('main[data-page="answers"]')
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(28)
    expect(rows.first).to_contain_text(MARKUP)
    box = page.get_by_label("paid, and the second grader gives less")
    expect(box).to_be_checked()
    box.uncheck()
    expect(rows).to_have_count(TASKS)
    page.get_by_role("button", name="second grader").click()
    expect(page.get_by_role("button", name="second grader ↑")).to_be_visible()
    page.get_by_role("button", name="second grader ↑").click()
    expect(rows.first.locator("td").nth(1)).to_have_text("1")
    page.get_by_label("evaluation").select_option("base")
    expect(page.get_by_text("paid 0.067")).to_be_visible()


def test_they_fit_a_phone(board):
    with visiting(board, viewport={"width": 420, "height": 800}) as visit:
        for view in ("#/run?run=hacked", "#/answers?run=hacked"):
            page = visit.go(view)
            assert page.evaluate(TOO_WIDE) == [], view
