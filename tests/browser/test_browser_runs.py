"""The list of runs, a phone's width, paper, and the right answer beside a sample."""

import shutil

import pytest
from playwright.sync_api import expect
from visiting import served, visiting

pytestmark = pytest.mark.browser

NAMES = ("run-10", "run-2", "run-1", "run-11")

TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const hidden = (one) => one && (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)
    || hidden(one.parentElement));
  return each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    && !hidden(each.parentElement);
}).map((each) => each.outerHTML.slice(0, 80))"""

STEP = "run=run-1&stage=grpo&step=1"

VIEWS = {
    "runs": "#/runs?overlay=%5B%22run-1%22%5D",
    "run": "#/run?run=run-1",
    "compare": "#/compare?a=run-1&b=run-2",
    "step": f"#/step?{STEP}",
    "sample": f"#/sample?{STEP}&sample=0/grpo/0/0/0",
    "group": f"#/group?{STEP}&group=0/grpo/0/0",
    "samples": "#/samples?run=run-1",
    "tasks": "#/tasks?run=run-1",
    "rules": "#/rules",
    "rule": "#/rule?code=RWD006",
    "glossary": "#/glossary",
}


@pytest.fixture(scope="module")
def board(rich, tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbered")
    for name in NAMES:
        shutil.copytree(rich, folder / name)
    with served(folder) as address:
        yield address


def listed(page):
    return page.locator("td.run a").all_inner_texts()


def test_the_list_is_sorted_by_numbers_in_names_both_ways_and_filtered(visit):
    page = visit.go("#/runs")
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.locator("td.run a").first).to_have_text("run-1")
    assert listed(page) == ["run-1", "run-2", "run-10", "run-11"]
    page.get_by_role("button", name="run ↑").click()
    expect(page.locator("td.run a").first).to_have_text("run-11")
    assert listed(page) == ["run-11", "run-10", "run-2", "run-1"]
    page.get_by_label("filter").fill("RUN-1")
    page.keyboard.press("Enter")
    expect(page.locator("td.run a")).to_have_count(3)
    assert listed(page) == ["run-11", "run-10", "run-1"]


def test_chosen_runs_have_their_curves_in_one_chart(visit):
    page = visit.go("#/runs")
    for name in ("run-1", "run-10", "run-11"):
        page.get_by_label(f"overlay {name}", exact=True).check()
        expect(page.get_by_label(f"overlay {name}", exact=True)).to_be_checked()
    chart = page.locator('figure[aria-label="reward/mean"]')
    expect(chart.locator(".legend span")).to_have_count(3)
    chart.locator(".plot").scroll_into_view_if_needed()
    page.get_by_label("overlay run-10", exact=True).uncheck()
    expect(chart.locator(".legend span")).to_have_count(2)


def test_boxes_that_are_ticked_before_the_page_is_drawn_again_all_count(visit):
    page = visit.go("#/runs")
    page.get_by_label("overlay run-1", exact=True).wait_for()
    page.evaluate(
        """() => ["run-1", "run-10", "run-11"].forEach(
            (name) => document.querySelector(`[aria-label="overlay ${name}"]`).click()
        )"""
    )
    expect(page.locator('figure[aria-label="reward/mean"]').locator(".legend span")).to_have_count(3)


@pytest.mark.parametrize("width", [420, 360])
def test_no_page_is_wider_than_a_phone(board, width):
    with visiting(board, viewport={"width": width, "height": 800}) as visit:
        for name, view in VIEWS.items():
            page = visit.go(view)
            page.wait_for_timeout(100)
            assert page.evaluate(TOO_WIDE) == [], name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_charts_below_the_fold_are_drawn_for_a_print(visit):
    page = visit.go("#/run?run=run-1")
    page.wait_for_function(
        "() => [...document.querySelectorAll('figure.chart[aria-label]')].every((one) => one.dataset.drawn)"
    )
    page.emulate_media(media="print")
    assert page.evaluate("scrollY") == 0
    assert page.locator("header").is_hidden()
    last = page.locator("figure.chart[aria-label] .plot .main-svg").last
    assert last.bounding_box()["height"] > 100
    page.emulate_media(media="screen")


def test_the_first_evaluation_keeps_its_tile_beside_the_last_ones(visit):
    page = visit.go("#/run?run=run-1")
    names = [each for each in page.locator(".tile .name").all_inner_texts() if "evaluation" in each]
    assert names[0] == "evaluation base"
    assert len(names) == 3
    assert page.get_by_text("loss state").count() == 0


def test_a_sample_has_the_right_answer_of_its_task(visit):
    page = visit.go(VIEWS["sample"])
    expect(page.get_by_text("right answer")).to_be_visible()
    assert page.locator("b:has-text('right answer') + code").inner_text()
