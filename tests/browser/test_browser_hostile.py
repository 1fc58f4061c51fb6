"""Whatever a run says stays text: on every page, and whatever it is asked for."""

import re
import time
from urllib.parse import quote

import pytest
from hostile import LONG, SHORT, write
from shown import evaluation, opened_run
from shown import write as write_step
from visiting import served, visiting

NAME = '"><img src=x onerror=window.pwned=1>&run=x#%2e%2e%00'
FOREIGN = """() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const foreign = "img, iframe, script, style, object, embed, form, video, foreignObject";
  const found = [...all(`:is(#page, #top) :is(${foreign})`), ...all("svg a, [onerror], [onload], [onclick]"),
    ...all("a").filter((each) => !(each.getAttribute("href") || "#").startsWith("#")),
    ...all("svg tspan").filter((each) => /bold|italic/.test(each.getAttribute("style") || ""))];
  return found.filter((each) => !each.closest(".modebar")).map((each) => each.outerHTML.slice(0, 200));
}"""

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\u200b]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rich):
    """Two hostile runs; the second has a folder's name and a stage that are no better."""
    root = tmp_path_factory.mktemp("hostile")
    write(root / "evil", rich / "tokenizer")
    write(root / NAME, rich / "tokenizer")
    steps = root / NAME / "steps.jsonl"
    steps.write_text(steps.read_text().replace('"stage": "grpo"', f'"stage": "{SHORT[:12]}"'))
    return root


@pytest.fixture(scope="module")
def board(folder):
    with served(folder) as address:
        yield address


def asks(**words):
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in words.items())


def pages(run, stage="grpo"):
    """Every page of a run."""
    of, sample = {"run": run, "stage": stage}, f"s0/{SHORT}"
    yield f"#/run?{asks(run=run)}"
    for step in "12" if run == "evil" else "1":
        yield f"#/step?{asks(**of, step=step)}"
        yield f"#/sample?{asks(**of, step=step, sample=sample, tint='entropy', token='4')}"
    yield f"#/sample?{asks(**of, step='2', sample=f's1/{SHORT}')}"
    yield f"#/group?{asks(**of, step='1', group=SHORT)}"
    yield f"#/samples?{asks(run=run, order='reward', task=SHORT)}"
    yield f"#/tasks?{asks(run=run)}"
    yield f"#/compare?{asks(a=run, b='evil')}"


def check(page):
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(FOREIGN) == []
    text = page.evaluate("document.title + document.body.innerText")
    assert not HIDDEN.search(text)
    return text


def settled(visit, view):
    """A page with everything on it open and drawn; where it can be none, its error."""
    page = visit.go(view, "main[data-page]:not([data-page='']), main > .error")
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    for top in range(0, page.evaluate("document.documentElement.scrollHeight"), 700):
        page.evaluate("(y) => scrollTo(0, y)", top)
        page.wait_for_timeout(30)
    return page


@pytest.mark.parametrize("run", ["evil", NAME])
def test_no_page_obeys_a_run(visit, run):
    stage = "grpo" if run == "evil" else SHORT[:12]
    for view in ("", *pages(run, stage)):
        page = settled(visit, view)
        text = check(page)
        assert len(text) > 50, view
    assert "window.pwned=1" in text


def test_tokens_are_text_and_what_hides_is_shown(visit):
    page = visit.go(f"#/sample?{asks(run='evil', stage='grpo', step='2', sample=f's0/{SHORT}')}")
    page.locator('.t[data-t="259"]').hover()
    text = check(page)
    assert "<script>window.pwned=1</script>" in text
    assert r"\u{202e}" in text
    assert r"\u{1b}[31m" in text
    assert "(1,000,000 characters)" in text


def test_a_chart_shows_a_hostile_name_as_it_is(visit):
    page = settled(visit, "#/run?run=evil")
    box = page.get_by_role("figure", name="Reward by task family")
    box.locator(".plot").hover()
    box.locator(".hoverlayer text").first.wait_for()
    check(page)
    assert "<img src=x onerror=window.pwned=1>" in box.text_content()


def test_a_sample_of_many_tokens_opens_at_once_and_where_a_link_says(visit):
    """Whole, its tokens would be 10^5 elements. A page takes one or two seconds; eight are a busy machine."""
    sample = f"s0/{SHORT}"
    begun = time.monotonic()
    page = visit.go(f"#/sample?{asks(run='evil', stage='grpo', step='2', sample=sample)}")
    assert page.locator(".t[data-t]").count() == 3000
    took = time.monotonic() - begun
    assert took < 8, took
    begun = time.monotonic()
    page.get_by_role("button", name=f"show {LONG - 3000} later tokens").click()
    page.wait_for_selector('.t[data-t="5999"]')
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".t.at")
    assert time.monotonic() - begun < 5
    page = visit.go(
        f"#/sample?{asks(run='evil', stage='grpo', step='2', sample=sample, token='70000')}",
        '.t.at[data-t="70000"]',
    )
    assert page.locator(".t[data-t]").count() == 3000
    page.get_by_role("button", name="show 69000 earlier tokens").click()
    page.wait_for_selector('.t[data-t="66000"]')
    shown = page.locator(".t[data-t]").evaluate_all("all => all.map((one) => Number(one.dataset.t))")
    assert shown == list(range(66000, 72000))
    ids = page.evaluate("document.querySelector('.card').innerText")
    assert f"id {70000 % 300}" in ids


def test_an_evaluation_of_any_size_keeps_no_run_from_being_listed(tmp_path):
    for name in ("odd", "good"):
        with opened_run(tmp_path / name) as writer:
            write_step(writer, 0)
            writer.write_event("eval", **evaluation("base", 0.5))
    events = tmp_path / "odd/events.jsonl"
    endless = events.read_text().replace('"mean": 0.5', '"mean": 1e999')
    assert "1e999" in endless
    events.write_text(endless)
    with served(tmp_path) as address, visiting(address) as visit:
        page = visit.go("#/runs", "tbody tr .state")
        assert page.locator("tbody tr").count() == 2
        assert "∞" not in page.locator("tbody tr", has_text="odd").inner_text()  # the line is damaged
        visit.go("#/run?run=odd", ".tiles")
        visit.go("#/compare?a=good&b=odd", "h1")
