"""Labs and hypotheses in the browser: what they say of themselves, and hostile text stays text."""

import pytest
from hostile import MARKUP
from labs import CLEAR, HEADER, lab_in, run_of
from playwright.sync_api import expect
from test_browser_hostile import check
from visiting import served

from truing.lab.report.text import verdict_lines
from truing.lab.run.design import BASELINE
from truing.lab.run.runner import declare_experiment
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import Ledger
from truing.lab.verdicts.verdict import judge

EVIL = MARKUP
FIGURE = "document.querySelector('.js-plotly-plot')"
HEADERS = {
    "h01": CLEAR,
    "h02": HEADER.replace("the arm helps", "<img src=x onerror=window.pwned=1> helps"),
    "h03": HEADER.replace("2e-3", "3e-3"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lab with an effect and a hypothesis that means harm."""
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
