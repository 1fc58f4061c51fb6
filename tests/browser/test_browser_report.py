"""`truing report RUN`: one file that asks for nothing, and says what the board says."""

from pathlib import Path

import pytest
from command import truing
from hostile import write
from playwright.sync_api import expect
from test_browser_hostile import FOREIGN, HIDDEN
from visiting import draw_all, visiting

CODE = 5_500_000
"""Bytes of Plotly and of the board's own pages, which every report holds."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory, planted, rich):
    """The file of three runs."""
    folder = tmp_path_factory.mktemp("reports")
    runs = {"planted": planted, "rich": rich, "evil": write(folder / "evil", rich / "tokenizer")}
    for name, run in runs.items():
        outcome = truing("report", run, "--out", folder / f"{name}.html")
        assert outcome.code == 0, outcome.err
        assert f"{name}.html" in outcome.out
    return {name: folder / f"{name}.html" for name in runs}


def open_report(visit, path: Path):
    page = visit.page
    page.goto(path.as_uri())
    page.wait_for_selector('main[data-page="run"]')
    return page


def test_it_says_what_the_board_says_and_asks_for_nothing(visit, reports):
    page = visit.go("#/run?run=rich")
    page.get_by_role("button", name="whole run").click()
    charts = draw_all(page)
    findings = page.locator(".finding").all_inner_texts()
    with visiting("file://") as file:
        page = open_report(file, reports["rich"])
        page.get_by_role("button", name="whole run").click()
        result = draw_all(page)
        assert result.keys() == charts.keys()
        assert result == charts
        assert page.locator(".finding").all_inner_texts() == findings
        asked = {each for each in file.asked if not each.startswith(("data:", "blob:"))}
        assert asked == {reports["rich"].as_uri()}


def test_no_link_leads_to_what_it_does_not_hold(reports):
    with visiting("file://") as file:
        page = open_report(file, reports["planted"])
        seen: dict[str, None] = {}
        todo = [""]
        while todo:
            link = todo.pop()
            page.goto(reports["planted"].as_uri() + link)
            page.wait_for_selector("main[data-page]:not([data-page='']), main > .error")
            assert page.locator("main > .error").count() == 0, link
            links = page.locator("main a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
            todo += [link for link in dict.fromkeys(links) if link not in seen]
            seen |= dict.fromkeys(links)
        assert len(seen) >= 12


def test_the_tokens_that_a_finding_means_are_in_it(reports):
    with visiting("file://") as file:
        page = open_report(file, reports["planted"])
        page.locator(".finding", has_text="MSK003").locator("a").nth(1).click()
        page.wait_for_selector('main[data-page="sample"]')
        expect(page.locator(".t.found").first).to_be_in_viewport()
        page.get_by_role("link", name="Compare group").click()
        page.wait_for_selector('main[data-page="group"]')
        page.get_by_role("link", name="truing board").click()
        page.locator(".finding b a").first.click()
        page.wait_for_selector('main[data-page="rule"]')


def test_a_hostile_run_is_text_in_it_too(reports):
    with visiting("file://") as file:
        page = open_report(file, reports["evil"])
        draw_all(page)
        for view in (
            "",
            *page.locator("main a").evaluate_all("all => all.map((one) => one.getAttribute('href'))"),
        ):
            page.goto(reports["evil"].as_uri() + view)
            page.wait_for_timeout(200)
            assert page.evaluate("window.pwned") is None
            assert page.evaluate(FOREIGN) == []
            assert not HIDDEN.search(page.evaluate("document.title + document.body.innerText"))


def test_its_size_is_bounded(reports):
    """Samples are told by windows, and few of them: a run of any length adds little to the code."""
    sizes = {name: path.stat().st_size for name, path in reports.items()}
    assert max(sizes.values()) < CODE + 6_000_000, sizes
    assert sizes["rich"] < CODE + 1_000_000, sizes
