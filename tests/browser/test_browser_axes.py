"""What stands along the axes of charts: steps as their stage counts them, bounds; and the jump list."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect
from visiting import draw_all

REWARD = "figure[aria-label=Reward] .plot"
SPANS = [
    {"stage": "sft", "start": 0, "end": 125, "first": 1},
    {"stage": "grpo", "start": 125, "end": 205, "first": 1},
    {"stage": "ppo", "start": 205, "end": 209, "first": 41},
]
TICKS = """(shown) => import("/axes.js").then(({ stepTicks }) => {
  const told = stepTicks(shown.spans, shown.range, shown.width || 350);
  return [told.title, Object.fromEntries(told.tickvals.map((x, i) => [x, told.ticktext[i]]))];
})"""


@pytest.mark.parametrize(
    ("shown", "title", "expected"),
    [
        ((124.8, 205.5, 126), "step of grpo", {126: "1", **{125 + n: str(n) for n in range(10, 81, 10)}}),
        ((140.2, 143.9), "step of grpo", {141: "16", 142: "17", 143: "18"}),
        ((142.6, 143.4), "step of grpo", {143: "18"}),
        ((205.5, 209.5), "step of ppo", {206: "41", 207: "42", 208: "43", 209: "44"}),
        ((0.5, 9.5), "step of sft", {n: str(n) for n in range(1, 10)}),
        ((120.5, 129.5), "step", {122: "sft 122", 124: "sft 124", 127: "grpo 2", 129: "grpo 4"}),
        ((-0.2, 209.5), "step", {50: "sft 50", 100: "sft 100", 175: "grpo 50", 209: "ppo 44"}),
    ],
)
def test_ticks_are_whole_steps_by_the_numbers_of_their_stage(visit, shown, title, expected):
    page = visit.go("#/rules")
    result = page.evaluate(TICKS, {"spans": SPANS, "range": list(shown)})
    assert result == [title, {str(x): text for x, text in expected.items()}]


def test_ticks_of_any_stretch_are_named_rightly_and_do_not_touch(visit):
    page = visit.go("#/rules")
    asked = [(low + 0.3, low + size) for low in range(0, 205, 7) for size in (1, 2, 5, 30, 90, 208)]
    asked = [(low, min(high, 209.5)) for low, high in asked]
    result = page.evaluate(
        f"(all) => Promise.all(all.map({TICKS}))",
        [{"spans": SPANS, "range": each, "width": 340} for each in asked],
    )
    for (low, high), (title, ticks) in zip(asked, result, strict=True):
        assert ticks, (low, high)
        places = sorted(map(int, ticks))
        names = set()
        for x in places:
            assert low <= x <= high
            span = next(each for each in SPANS if each["start"] < x <= each["end"])
            number = str(x - span["start"] + span["first"] - 1)
            names.add(span["stage"])
            assert ticks[str(x)] == (f"{span['stage']} {number}" if title == "step" else number)
        assert title == "step" or names == {title.removeprefix("step of ")}
        wide = max(map(len, ticks.values())) * 5  # pixels, at least
        assert all((b - a) / (high - low) * 340 > wide for a, b in pairwise(places))


def test_a_log_axis_has_two_labels_or_more_that_say_what_they_are(visit):
    page = visit.go("#/rules")
    ends = [
        (low, low * 10**decades)
        for low in (3e-9, 7.3e-7, 0.00999, 0.1, 0.84, 0.99999, 1, 4.4, 9.5, 73_000)
        for decades in (1e-5, 0.004, 0.05, 0.2, 0.5, 1, 1.7, 3, 5, 9, 14)
    ]
    result = page.evaluate(
        """(all) => import("/axes.js").then(({ logTicks }) => all.map((each) => logTicks(...each)))""",
        ends,
    )
    for (low, high), ticks in zip(ends, result, strict=True):
        assert 2 <= len(ticks) <= 6, (low, high, ticks)
        assert len({each["text"] for each in ticks}) == len(ticks)
        for each in ticks:
            assert low * (1 - 1e-9) <= each["at"] <= high * (1 + 1e-9)
            assert read(each["text"]) == pytest.approx(each["at"], rel=1e-9)


def read(text):
    """The number that a label says: 0.002, 2×10⁻⁶, 10⁵."""
    much, _, ten = text.rpartition("10") if any(each in text for each in RAISED) else (text, "", "")
    power = "".join(RAISED[each] for each in ten) or "0"
    return float(much.rstrip("×") or 1) * 10.0 ** int(power)


RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))


def test_a_stretch_holds_a_whole_step(visit):
    page = visit.go("#/rules")
    result = page.evaluate(
        """() => import("/axes.js").then(({ atLeastOneStep }) =>
            [[3.2, 3.4], [3.6, 3.7], [2, 5]].map(atLeastOneStep))"""
    )
    assert result == [[2.5, 3.5], [3.5, 4.5], [2, 5]]


def test_the_run_page_names_steps_as_the_rest_does(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    axis = "each => [each.layout.xaxis.title.text, each.layout.xaxis.ticktext]"
    for stretch, title, labels in (
        ("grpo", "step of grpo", ["1", "2", "3", "4", "5"]),
        ("whole run", "step", ["sft 2", "grpo 2", "grpo 4"]),
    ):
        page.get_by_role("button", name=stretch).click()
        expect(page.locator(REWARD).locator(".xtitle")).to_have_text(title)
        assert page.locator(REWARD).evaluate(axis) == [title, labels]
        drawn = (
            page.locator(REWARD)
            .locator(".xtick text")
            .evaluate_all("all => all.map((one) => one.textContent)")
        )
        assert drawn == labels


def test_the_hover_names_the_step(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    page.get_by_role("button", name="whole run").click()
    plot = page.locator(REWARD)
    expect(plot.locator(".xtitle")).to_have_text("step")
    plot.evaluate("each => each.scrollIntoView({ block: 'center' })")
    for x, title in ((5, "grpo 2"), (8, "grpo 5"), (0, "before the first step")):
        at = plot.evaluate(
            """(each, x) => { const { xaxis } = each._fullLayout, at = each.getBoundingClientRect();
                 return [at.x + xaxis._offset + xaxis.l2p(x), at.y + 60]; }""",
            x,
        )
        page.mouse.move(at[0] - 1, at[1])
        page.mouse.move(*at)
        expect(plot.locator(".hoverlayer .legendtitletext")).to_have_text(title)
        page.mouse.move(at[0], at[1] + 3)  # on the same point, which is drawn again
        page.wait_for_timeout(100)
        expect(plot.locator(".hoverlayer .legendtitletext")).to_have_text(title)


BOXES = """() => [...document.querySelectorAll("figure.chart[aria-label]")].map((each) => {
  const box = (one) => { const { left, right, top, bottom } = one.getBoundingClientRect();
    return { left, right, top, bottom, text: one.textContent }; };
  const all = (names) => [...each.querySelectorAll(names)].filter((one) => one.checkVisibility()).map(box);
  return { title: each.getAttribute("aria-label"), plot: box(each.querySelector("svg.main-svg")),
    labels: all(".annotation text"), ticks: all(".xtick text") };
})"""
LABELS = ["1 − clip_low", "1 + clip_high", "kl.target", "kl.cap", "expected", "grpo"]
LAID_OUT = f"""(expected) => {{
  const shown = ({BOXES})().flatMap(({{ labels, ticks }}) => [...labels, ...ticks]);
  const texts = new Set(shown.map(({{ text }}) => text));
  return shown.every(({{ left, right }}) => left < right) && expected.every((text) => texts.has(text));
}}"""


@pytest.mark.parametrize("stretch", ["grpo", "whole run"])
def test_no_label_is_cut_off_or_lies_on_another(visit, rich, stretch):
    page = visit.go(f"#/run?run={rich.name}")
    page.get_by_role("button", name=stretch).click()
    draw_all(page)
    # Plotly shows labels after it has measured them, and hides those of ticks that would pass the plot's edge
    page.wait_for_function(LAID_OUT, arg=LABELS, timeout=60_000)
    for chart in page.evaluate(BOXES):
        for group in ("labels", "ticks"):
            boxes = chart[group]
            for each in boxes:
                assert chart["plot"]["left"] - 1 <= each["left"] < each["right"] <= chart["plot"]["right"] + 1
                assert chart["plot"]["top"] - 1 <= each["top"] < each["bottom"] <= chart["plot"]["bottom"] + 1
            for i, one in enumerate(boxes):
                for other in boxes[i + 1 :]:
                    apart = max(
                        one["left"] - other["right"],
                        other["left"] - one["right"],
                        one["top"] - other["bottom"],
                        other["top"] - one["bottom"],
                    )
                    assert apart >= -1, (chart["title"], one, other)


def test_the_jump_list_leads_to_every_room_by_the_keyboard(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    jumps = page.get_by_role("navigation", name="on this page").get_by_role("button")
    names = jumps.all_inner_texts()
    rooms = page.locator("h2:has(small)").evaluate_all("all => all.map((one) => one.firstChild.data)")
    assert names[:2] == ["Findings", "Success criteria"]
    assert names[2 : 2 + len(rooms)] == rooms
    assert set(names[2 + len(rooms) :]) == {"Events", "First tokens explained", "Configuration"}
    here = page.evaluate("location.hash")
    for name in ("Sampler", "Reward", "Configuration", "Success criteria", "Findings"):
        jumps.get_by_text(name, exact=True).focus()
        page.keyboard.press("Enter")
        target = page.locator(f'[data-jump="{name}"]')
        expect(target).to_be_focused()
        expect(target).to_be_in_viewport()
        bar = page.locator("nav.jump").bounding_box()
        assert target.bounding_box()["y"] >= bar["y"] + bar["height"], name
        assert bar["y"] >= page.locator("header").bounding_box()["height"] - 1
    assert page.evaluate("location.hash") == here
