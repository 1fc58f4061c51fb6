"""The keyboard, dark and light, and a laptop's screen."""

import pytest
from playwright.sync_api import expect
from recorded import samples_of

from truing.record import RunReader

PAGES = {
    "overview": "",
    "run": "#/run?run=rich",
    "step": "#/step?run=rich&stage=grpo&step=2",
    "sample": "#/sample?run=agent&stage=grpo&step=1&sample=0/grpo/0/0/0",
    "group": "#/group?run=agent&stage=grpo&step=1&group=0/grpo/0/0",
    "samples": "#/samples?run=rich",
    "tasks": "#/tasks?run=rich",
    "compare": "#/compare?a=rich&b=critic",
    "rules": "#/rules",
    "rule": "#/rule?code=MSK003",
    "words": "#/glossary",
}


@pytest.fixture(autouse=True)
def _runs(rich, critic, agent, planted):
    """What the pages show."""


def test_tab_reaches_links_and_enter_follows_them(visit):
    page = visit.go()
    where = "document.activeElement.innerText || document.activeElement.ariaLabel"
    page.keyboard.press("Tab")  # what a page is about has the focus, so that its first control comes first
    assert page.evaluate("document.activeElement.placeholder") == "name, state, model, finding"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    seen = []
    for _ in range(7):
        page.keyboard.press("Shift+Tab")
        seen.append(page.evaluate(where))
    assert seen == ["?", "◐", "Glossary", "Rules", "Compare", "Runs", "truing board"]
    page.locator("tbody a", has_text="rich").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-page="run"]')


def test_keys_lead_up_and_down_and_on(visit):
    page = visit.go(PAGES["step"])
    page.keyboard.press(".")
    expect(page.locator("h1")).to_have_text("grpo 3")
    page.keyboard.press(",")
    expect(page.locator("h1")).to_have_text("grpo 2")
    page.get_by_role("link", name="0/grpo/1/0/0", exact=True).first.click()
    page.wait_for_selector('main[data-page="sample"]')
    for lands, title in (("step", "grpo 2"), ("run", "rich"), ("runs", "Runs")):
        page.keyboard.press("u")
        page.wait_for_selector(f'main[data-page="{lands}"]')
        expect(page.locator("h1")).to_have_text(title)
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_selector('main[data-page="rules"]')
    page.keyboard.press("/")
    page.keyboard.type("MSK003")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_words_are_explained_from_the_header_the_dialog_and_the_keyboard(visit):
    page = visit.go()
    page.get_by_role("link", name="Glossary").click()
    page.wait_for_selector('main[data-page="glossary"]')
    expect(page.locator("dt", has_text="inner epoch")).to_be_visible()
    visit.go()
    page.keyboard.press("?")
    page.get_by_role("link", name="glossary", exact=True).click()
    page.wait_for_selector('main[data-page="glossary"]')
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.go()
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_selector('main[data-page="glossary"]')


def test_the_keys_are_reported_in_a_dialog(visit):
    page = visit.go()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_dark_and_light_differ_and_the_choice_is_kept(visit):
    page = visit.go()
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.keyboard.press("d")
    dark = page.evaluate(colour)
    assert light != dark
    page.reload()
    page.wait_for_selector('main[data-page="runs"]')
    assert page.evaluate(colour) == dark
    page.keyboard.press("d")
    assert page.evaluate(colour) == light


def test_no_page_is_wider_than_a_laptop(visit):
    for name, view in PAGES.items():
        page = visit.go(view, "main[data-page]:not([data-page='']) h1")
        page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1366, name


def test_back_leads_to_where_somebody_was(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    page.wait_for_selector("figure[aria-label=Reward][data-drawn]")
    page.evaluate("window.scrollTo(0, 900)")
    page.wait_for_function("() => window.scrollY > 800")
    page.wait_for_timeout(100)
    page.evaluate("document.querySelector('main a[href*=step]').click()")
    page.wait_for_selector('main[data-page="step"]')
    assert page.evaluate("window.scrollY") < 100
    page.go_back()
    page.wait_for_selector('main[data-page="run"]')
    page.wait_for_function("() => window.scrollY > 600")


def test_the_tint_that_was_chosen_goes_along(visit, rich):
    names = [each.sample_id for each in samples_of(RunReader(rich).find_table("grpo", 0))]
    page = visit.go(f"#/sample?run={rich.name}&stage=grpo&step=1&sample={names[0]}")
    page.keyboard.press("t")
    chosen = page.locator("#tint").input_value()
    assert chosen != "none"
    page.keyboard.press(".")
    page.wait_for_function("(name) => document.querySelector('h1').textContent === name", arg=names[1])
    assert page.locator("#tint").input_value() == chosen
    assert f"tint={chosen}" in page.url
