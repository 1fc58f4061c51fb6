"""Prompts and samples in the browser: filters, search, bars, pages; the keyboard's focus stays."""

import pytest
from playwright.sync_api import expect
from recorded import make_sample
from shown import changed, opened_run, write
from visiting import served, visiting

from truing.board.views import prompts

TASKS = 130
"""Prompts of the run, one a step: more than a page holds. Of four rollouts as many pass as are told."""


NAMES = ["0 %", *(f"{i}–{i + 10} %" for i in range(0, 100, 10)), "100 %"]


def passes(task):
    return (0, 1, 4)[task % 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of one demonstration, and of a step for each prompt."""
    folder = tmp_path_factory.mktemp("lists")
    with opened_run(folder / "run", stages=["sft", "grpo"]) as writer:
        write(writer, 0, stage="sft", rows=[changed(make_sample("demo"), reward=float("nan"))])
        for step in range(TASKS):
            messages = ({"role": "user", "content": f"what is {step}?"},)
            own = {"task_id": f"task-{step:03}", "group_id": f"g{step}", "messages": messages}
            rows = [
                changed(
                    make_sample(f"{step}/{i}"),
                    reward=float(i < passes(step)),
                    text=f"it is <b>{i}</b>",
                    **own,
                )
                for i in range(4)
            ]
            write(writer, step, rows=[changed(row, rollout_id=row.sample_id) for row in rows])
    return folder


@pytest.fixture(scope="module")
def board(folder):
    with served(folder) as address:
        yield address


def focused(page):
    return page.evaluate("document.activeElement.dataset.hold")


def listed(page):
    return page.locator("tbody tr td:first-child a").all_inner_texts()


def click_bar(page, name):
    """Click in the middle of a bar, as a hand does: above it lies what hears the mouse."""
    bar = page.locator(".bars .point path").nth(NAMES.index(name)).bounding_box()
    at = bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2
    page.mouse.move(*at)
    page.wait_for_selector(".hoverlayer text")
    page.mouse.click(*at)


def of(count):
    return [f"task-{task:03}" for task in range(TASKS) if passes(task) == count]


def test_samples_begin_at_the_stage_that_earns_and_say_how_they_answer(visit):
    page = visit.go("#/samples?run=run")
    expect(page.get_by_label("stage")).to_have_value("grpo")
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("it is <b>0</b>")
    expect(first).to_contain_text("grpo 1")
    page.get_by_label("stage").select_option("sft")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("demo")
    assert "stage=sft" in page.url
    page.reload()
    expect(page.get_by_label("stage")).to_have_value("sft")
    page.get_by_label("stage").select_option("all")
    expect(page.locator("p.quiet").first).to_have_text("521 samples")


def test_a_filter_keeps_the_focus_and_an_empty_list_says_so(visit):
    page = visit.go("#/samples?run=run")
    for label, keys, name in (("max", "0.5", "most"), ("task", "task-000", "task")):
        page.get_by_label(label, exact=True).fill(keys)
        page.keyboard.press("Enter")
        expect(page.get_by_label(label, exact=True)).to_be_focused()
        assert focused(page) == name
        page.wait_for_selector('main[data-page="samples"]')
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_label("status").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("status")).to_have_value("done")
    page.wait_for_selector('main[data-page="samples"]')
    expect(page.get_by_label("status")).to_be_focused()
    page.get_by_label("with findings").check()
    expect(page.get_by_label("with findings")).to_be_focused()
    expect(page.get_by_text("No matching samples.")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_role("button", name="reward").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="reward ↑")).to_be_focused()


def test_a_bar_lists_its_prompts_and_leads_back(visit):
    page = visit.go("#/tasks?run=run")
    page.wait_for_selector(".bars path")
    click_bar(page, "0 %")
    page.wait_for_function("() => location.hash.includes('passed=never')")
    expect(page.get_by_label("pass rate")).to_have_value("never")
    expect(page.get_by_text(f"{len(of(0))} of {TASKS} prompts")).to_be_visible()
    assert sorted(listed(page)) == of(0)
    page.reload()
    page.wait_for_selector(".bars path")
    paint = page.evaluate("document.querySelector('.plot').data[0].marker.color")
    assert [i for i, each in enumerate(paint) if each == paint[0]] == [0]
    page.get_by_label("pass rate").focus()
    page.get_by_label("pass rate").select_option("20-30")
    page.wait_for_function("() => location.hash.includes('passed=20-30')")
    page.wait_for_selector('main[data-page="tasks"]')
    expect(page.get_by_label("pass rate")).to_be_focused()
    expect(page.locator("tbody tr")).to_have_count(len(of(1)))
    assert sorted(listed(page)) == of(1)
    page.wait_for_function("() => document.querySelector('.plot').data?.[0].marker.color[3].length === 7")
    click_bar(page, "20–30 %")
    page.wait_for_function("() => !location.hash.includes('passed')")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_label("pass rate").select_option("always")
    page.get_by_role("link", name="all pass rates").click()
    expect(page.get_by_label("pass rate")).to_have_value("")
    assert focused(page) == "passed"


def test_prompts_are_found_by_what_they_ask(visit):
    page = visit.go("#/tasks?run=run")
    page.keyboard.press("/")
    page.keyboard.type("IS 77")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert listed(page) == ["task-077"]
    expect(page.get_by_label("find")).to_be_focused()
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No matching prompts.")).to_be_visible()
    expect(page.locator("#page [role=status]", has_text="Loading")).to_have_count(0)


def test_a_search_goes_on_until_all_is_read_and_takes_nobodys_words_away(folder, monkeypatch):
    """While there is no time, each question reads one step, and the page asks again and again."""
    monkeypatch.setattr(prompts, "READ_SECONDS", 0.0)
    with served(folder) as address, visiting(address) as visit:
        page = visit.go("#/tasks?run=run&text=is+129")
        expect(page.get_by_text("No matching prompts yet.")).to_be_visible()
        page.get_by_label("find").fill("is 12")
        asked = len(visit.asked)
        page.wait_for_timeout(700)
        assert len(visit.asked) > asked + 1
        expect(page.get_by_label("find")).to_have_value("is 12")
        expect(page.get_by_label("find")).to_be_focused()
        monkeypatch.setattr(prompts, "READ_SECONDS", 1.0)
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(11)
        expect(page.locator("#page [role=status]")).to_have_count(0)


def test_more_leads_to_the_top_of_the_list(visit):
    page = visit.go("#/tasks?run=run")
    page.get_by_role("link", name="next →").last.click()
    expect(page.get_by_text(f"101 to {TASKS} of {TASKS}").first).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(30)
    at = "document.querySelector('[data-list]').getBoundingClientRect().top"
    height = page.evaluate("innerHeight")
    assert 0 < page.evaluate(at) < height / 4
    page.keyboard.press(",")
    expect(page.locator("tbody tr")).to_have_count(100)
    assert 0 < page.evaluate(at) < height / 4
    page.get_by_role("link", name="next →").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(30)
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(100)


def test_seconds_are_rounded_before_they_become_minutes(visit):
    visit.go("")
    expected = {
        0.04: "0.0 s",
        9.94: "9.9 s",
        9.96: "10 s",
        59.6: "1 min 0 s",
        61: "1 min 1 s",
        239.8: "4 min 0 s",
        3599.4: "59 min 59 s",
        3599.6: "1 h 0 min",
        7199: "2 h 0 min",
    }
    shown = visit.page.evaluate(
        """(all) => import("/dom.js").then(({ duration }) => all.map((each) => duration(each)))""",
        list(expected),
    )
    assert shown == list(expected.values())
