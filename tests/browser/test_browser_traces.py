"""Traces in the browser: what the command says of them, what they have not, and hostile text stays text."""

import json
import math

import pytest
from command import truing
from hostile import BYTES, MARKUP
from playwright.sync_api import expect
from test_browser_hostile import check
from visiting import served

from truing.doctor.traces.demo import SETUP, STEPS, write_trace
from truing.trace_writer import Writer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trace with a fault, a poor one, and one whose texts mean harm."""
    root = tmp_path_factory.mktemp("traces")
    write_trace(root / "faulty", "micro-batch-mean")
    poor = Writer(root / "poor", producer="test")
    for number in (10, 20, 25):
        poor.step(number, ids=[[5, 6, 7], [5, 8]], loss_mask=[[0, 1, 1], [0, 1]])
    poor.close()
    evil = Writer(root / "evil", producer=MARKUP, decode=lambda ids: [f"{MARKUP}{BYTES[:-1]}"] * len(ids))
    evil.step(1, ids=[[5, 6]], loss_mask=[[0, 1]], sample_id=[MARKUP], numbers={MARKUP: 1.0})
    evil.close()
    return root


@pytest.fixture(scope="module")
def board(folder):
    """However busy the machine is, its traces are read at once."""
    with pytest.MonkeyPatch.context() as patch, served(folder) as address:
        patch.setattr("truing.board.data.trace_reader.READ_SECONDS", math.inf)
        yield address


def test_a_trace_shows_what_the_command_says(visit, folder):
    facts = json.loads(truing("check", folder / "faulty", "--json").out)
    page = visit.go("#/run?run=faulty")
    findings = page.locator("section.finding")
    for section, each in zip(findings.all(), facts["findings"], strict=True):
        expect(section).to_contain_text(f"{each['code']} {each['name']}")
        expect(section.locator("p").first).to_have_text(each["what"])
    assert page.locator("main ul li").all_inner_texts() == facts["formulas"]
    summaries = page.locator("summary").all_inner_texts()
    assert f"{len(facts['clean'])} rules are clean" in summaries
    assert f"{len(facts['not_checked'])} rules were not checked" in summaries
    expect(page.locator(".tiles").first).to_contain_text(f"steps\n{STEPS}", use_inner_text=True)
    assert "A trace has no evaluations, times or recipe." in check(page)


def test_a_step_of_a_trace_opens_its_tokens(visit):
    page = visit.go("#/step?run=faulty&stage=grpo&step=0")
    assert page.locator("main table").first.locator("tbody tr").count() == 16
    page.locator("main table").first.locator("tbody a").first.click()
    page.wait_for_selector('main[data-page="sample"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".card")).to_contain_text("log-prob., new")
    assert "undefined" not in check(page)


def test_a_poor_trace_has_no_empty_chart_and_names_its_steps(visit):
    page = visit.go("#/run?run=poor")
    charts = page.locator("figure.chart h3").all_inner_texts()
    assert "Reward" not in charts
    assert "Number of tokens" in charts
    page.wait_for_selector("figure.chart[data-drawn]")
    ticks = page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.ticktext")
    assert ticks[-1] == "25"
    page.get_by_role("link", name="last step").click()
    page.wait_for_selector('main[data-page="step"]')
    assert page.locator("h1").inner_text() == "train 25"
    assert "undefined" not in check(page)


def test_a_trace_that_means_harm_is_text(visit):
    page = visit.go("#/run?run=evil")
    check(page)
    page = visit.go("#/step?run=evil&stage=train&step=1")
    assert MARKUP in check(page)


def test_the_list_has_traces_by_what_they_have(visit):
    page = visit.go("#/runs")
    expect(page.locator("tbody tr")).to_have_count(3)
    row = page.locator("tbody tr", has_text="faulty")
    expect(row).to_contain_text("trace")
    expect(row).to_contain_text("MSK003")
    assert SETUP["algo"] in row.inner_text()
