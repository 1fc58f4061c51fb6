"""Labs, hypotheses and audits in the browser: what they say of themselves, and hostile text stays text."""

from dataclasses import replace

import pytest
from hostile import BYTES, MARKUP
from labs import CLEAR, HEADER, lab_in, run_of
from playwright.sync_api import expect
from test_browser_hostile import check
from visiting import served

from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.traces.version_0 import StepWriter
from truing.doctor.truing_run import recorded_steps
from truing.lab.report.text import verdict_lines
from truing.lab.run.design import BASELINE
from truing.lab.run.runner import declare_experiment
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import Ledger
from truing.lab.verdicts.verdict import judge
from truing.types.step_table import NO_PASSES

EVIL = MARKUP
FIGURE = "document.querySelector('.js-plotly-plot')"
HEADERS = {
    "h01": CLEAR,
    "h02": HEADER.replace("the arm helps", "<img src=x onerror=window.pwned=1> helps"),
    "h03": HEADER.replace("2e-3", "3e-3"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, planted):
    """A lab with an effect, a hypothesis that means harm, and audits of a run with a fault."""
    root = tmp_path_factory.mktemp("labs")
    lab = lab_in(root / "lab", HEADERS)
    evil = lab.hypotheses["h02"].path
    evil.write_text(evil.read_text().replace("H02: Some", f"H02: Some {EVIL}"))
    lab, ledger = open_lab(root / "lab"), Ledger(lab.ledger_folder)
    first = lab.hypotheses["h01"]
    lab = declare_experiment(lab, first, ledger, underpowered=True)
    for seed in range(9):
        for label, value in ((BASELINE, 0.01), ("changed", 0.9)):
            ledger.write(run_of(lab, first, label, seed, value + seed / 100))
    failed = {"metrics": {}, "tasks": {}, "curve": [], "outcome": "crashed", "error": EVIL}
    ledger.write(run_of(lab, first, "changed", 9, 0.0, **failed))
    ledger.close()
    audit, poor = (
        StepWriter(root / "audit", lambda ids: [f"{EVIL}{BYTES[:-1]}"] * len(ids)),
        StepWriter(root / "poor", lambda ids: [""] * len(ids)),
    )
    for step in recorded_steps(planted):
        audit.write(replace(step, samples=[replace(each, sample_id=EVIL) for each in step.samples]))
        poor.write(replace(step, streams={}, passes=NO_PASSES, metrics={}, facts={}))
    return root


@pytest.fixture(scope="module")
def board(folder):
    with served(folder) as address:
        yield address


def test_a_lab_shows_what_its_status_says(visit, folder):
    lab = open_lab(folder / "lab")
    page = visit.go("#/lab?lab=lab")
    verdicts = [judge(lab, each) for each in lab.hypotheses.values()]
    assert [each.verdict for each in verdicts] == ["VALIDATED", "PENDING", "PENDING"]
    for row, each in zip(page.locator("tbody tr").all(), verdicts, strict=True):
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == each.hypothesis
        assert cells[1] == f"{each.title}\n{lab.hypotheses[each.hypothesis].header.claim}"
        assert (cells[2], cells[3], cells[6]) == (each.verdict, each.because, each.quality)
        assert cells[5] == (str(each.pairs) if each.pairs else "–")
    assert page.locator("tbody tr").first.locator("td").nth(4).inner_text().startswith("0.89 [")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    drawn = page.evaluate(
        "(({x, y}) => [Array.from(x), Array.from(y)])(document.querySelector('.js-plotly-plot').data[0])"
    )
    assert drawn == [[pytest.approx(verdicts[0].effect)], ["h01 (eval/reward)"]]
    check(page)


def test_a_hypothesis_shows_its_status_its_curves_and_its_runs(visit, folder):
    lab = open_lab(folder / "lab")
    visit.go("#/lab?lab=lab")
    page = visit.page
    page.get_by_role("link", name="h01").click()
    page.wait_for_selector('main[data-page="hypothesis"]')
    lines = [text for text, _ in verdict_lines(judge(lab, lab.hypotheses["h01"]))]
    assert page.locator("main pre").first.inner_text() == "\n".join(lines)
    expect(page.locator("main p .verdict")).to_have_text("VALIDATED")
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length === 1")
    rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    assert [row[:4] for row in rows if row[0] == "changed"][:2] == [
        ["changed", "0", "finished", "0.9"],
        ["changed", "1", "finished", "0.91"],
    ]
    assert len(rows) == 19
    assert rows[-1] == ["changed", "9", "crashed", "–", EVIL]
    first = page.evaluate(f"{FIGURE}._fullData[0].x0")
    assert first == 1  # steps count from 1
    check(page)
    page.get_by_role("link", name="lab", exact=True).click()
    page.wait_for_selector('main[data-page="lab"]')


def test_a_hypothesis_that_means_harm_is_text(visit):
    page = visit.go("#/hypothesis?lab=lab&hypothesis=h02")
    page.locator("summary").click()
    text = check(page)
    assert EVIL in page.locator("h1").inner_text()
    assert text.count("<script>window.pwned=1</script>") == 3  # its title, its status, its file


def test_the_figures_of_a_lab_follow_the_colours_of_the_page(visit):
    page = visit.go("#/lab?lab=lab")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    font, line = (f"{FIGURE}.layout.{each}" for each in ("font.color", "shapes[0].line.color"))
    light = page.evaluate(font), page.evaluate(line)
    page.keyboard.press("d")
    page.wait_for_function(f"(light) => {font} !== light", arg=light[0])
    assert page.evaluate(line) == page.evaluate(font) != light[1]
    page.keyboard.press("d")


@pytest.mark.parametrize("name", ["audit", "poor"])
def test_an_audit_shows_what_the_command_says(visit, folder, name):
    facts = report_facts(diagnose_run(folder / name))
    page = visit.go(f"#/audit?audit={name}")
    findings = page.locator("section.finding")
    assert findings.count() == len(facts["findings"])
    for section, each in zip(findings.all(), facts["findings"], strict=True):
        expect(section).to_contain_text(f"{each['code']} {each['name']}")
        expect(section.locator("p").first).to_have_text(each["what"])
        expect(section.locator(".verdict")).to_contain_text(each["verdict"])
    heads = page.locator("h2").all_inner_texts()
    counts = {"clean": len(facts["clean"]), "not checked": len(facts["not_checked"])}
    assert [int(head.split()[0]) for head in heads] == [count for count in counts.values() if count]
    rows = [tuple(row.locator("td").all_inner_texts()) for row in page.locator("tbody tr").all()]
    assert rows == [(code, ", ".join(needs)) for code, needs in facts["not_checked"].items()]
    text = check(page)
    if name == "audit":
        assert facts["findings"]
        assert "<script>window.pwned=1</script>" in text
        assert r"\u{202e}" in text
    else:
        assert rows
