"""Every chart of a run, as Plotly holds it in the page, against the numbers in the record."""

import math
import time

import pytest
from playwright.sync_api import expect
from visiting import draw_all, visiting

from truing.board.views.chart_groups import CHART_GROUPS as DECLARED
from truing.config import resolve
from truing.record import RunReader

ROOMS = {"Reward", "Tokens", "Policy", "Critic", "Answers", "Sampler", "Cost"}


def numbers_of(run):
    """Each recorded number: steps of the run from 1 that have it, and its values."""
    facts = {}
    for row, step in enumerate(RunReader(run).steps(), start=1):
        seconds = {f"seconds/{phase}": value for phase, value in step.seconds.items()}
        for name, value in {**step.metrics, **seconds}.items():
            if math.isfinite(value):
                xs, ys = facts.setdefault(name, ([], []))
                xs.append(row)
                ys.append(value)
    return facts


@pytest.fixture(scope="module")
def charts(board, rich, critic, agent):
    """All charts of three runs, each over the whole run, and what the rooms are called."""
    facts = {}
    for run in (rich, critic, agent):
        with visiting(board) as visit:
            page = visit.go(f"#/run?run={run.name}")
            page.get_by_role("button", name="whole run").click()
            rooms = page.locator("h2:has(small)").evaluate_all("all => all.map((one) => one.firstChild.data)")
            facts[run.name] = draw_all(page), rooms
    return facts


def first_steps(run):
    """Where stages but the first begin, as the run counts from 0."""
    steps = RunReader(run).steps()
    return [i for i in range(1, len(steps)) if steps[i].stage != steps[i - 1].stage]


@pytest.mark.parametrize("name", ["rich", "critic", "agent"])
def test_every_trace_is_the_record_and_every_number_is_in_a_chart(charts, name, request):
    output, result = numbers_of(request.getfixturevalue(name)), set()
    for title, chart in charts[name][0].items():
        traces = [each for each in chart["traces"] if each["mode"] != "markers"]
        names = chart["names"] or [traces[0]["name"]]  # one number alone has no legend
        assert len(traces) == len(names), title
        for number, trace in zip(names, traces, strict=True):
            places = zip(*output[number], strict=True)
            drawn = [(x, y) for x, y in places if y > 0 or not chart["log"]]
            assert list(zip(trace["x"], trace["y"], strict=True)) == drawn, (title, number)
            result.add(number)
    assert result == set(output)


def test_a_log_axis_is_where_the_rooms_say(charts):
    logs = {chart.title for group in DECLARED for chart in group.charts if chart.log}
    for told, _ in charts.values():
        assert {title for title, chart in told.items() if chart["log"]} == logs & set(told)


def test_every_room_is_shown(charts):
    assert {room for _, rooms in charts.values() for room in rooms} >= ROOMS


def test_limits_are_those_of_the_recipe(charts, rich):
    recipe = resolve(RunReader(rich).run_json()["recipe"])
    (begin,) = first_steps(rich)
    expected = {
        "Ratio of new to old policy, quantiles": {0.8: "1 − clip_low", 1.28: "1 + clip_high"},
        "KL to the reference, per token": {recipe.kl.target: "kl.target", recipe.kl.cap: "kl.cap"},
        "Gradient norm, before clipping": {recipe.optimizer.max_grad_norm: "optimizer.max_grad_norm"},
        "Length of answers": {float(recipe.sampling.max_new_tokens): "sampling.max_new_tokens, of each turn"},
        "Evidence against the sampler": {6.0: "EVIDENCE threshold"},
        "Token alignment": {1.0: "expected"},
    }
    for title, chart in charts["rich"][0].items():
        across = [each for each in chart["shapes"] if each.get("xref") == "paper"]
        assert all(each["y0"] == each["y1"] for each in across)
        limits = expected.get(title, {})
        assert [each["y0"] for each in across] == pytest.approx(list(limits)), title
        assert [each for each in chart["labels"] if each not in ("sft", "grpo")] == list(limits.values()), (
            title
        )
        down = [each["x0"] for each in chart["shapes"] if each.get("yref") == "paper"]
        assert down == [begin + 0.5], title


def test_evaluations_are_points_with_their_interval(charts, rich):
    (marks,) = [each for each in charts["rich"][0]["Reward"]["traces"] if each["mode"] == "markers"]
    reader = RunReader(rich)
    (begin,) = first_steps(rich)
    ends = {"base": 0, "after_sft": begin, "after_grpo": len(reader.steps())}
    payloads = [each.payload for each in reader.events() if each.kind == "eval"]
    places = []
    for each in payloads:
        stage, at, done = each["name"].partition("@")
        places.append(int(done) + {"sft": 0, "grpo": begin}[stage] if at else ends[each["name"]])
    means = [each["estimate"]["mean"] for each in payloads]
    assert len(payloads) >= 4
    assert marks["x"] == places
    assert marks["y"] == means
    for side, bound, sign in (("array", "high", 1), ("arrayminus", "low", -1)):
        expected = [sign * (each["estimate"][bound] - each["estimate"]["mean"]) for each in payloads]
        assert marks["error"][side] == pytest.approx(expected)


def test_an_evaluation_says_its_interval_and_how_many_tasks_it_rests_on(visit, rich):
    result = [each.payload["estimate"] for each in RunReader(rich).events() if each.kind == "eval"][-1]
    page = visit.go(f"#/run?run={rich.name}")
    tile = page.locator(".tile", has_text="evaluation after grpo")
    expect(tile.locator(".more div").first).to_have_text(f"95 % [{result['low']:.3f}, {result['high']:.3f}]")
    expect(tile.locator(".more div").last).to_have_text("8 tasks")
    page = visit.go("#/")
    line = page.locator("tr", has=page.get_by_role("link", name=rich.name, exact=True))
    expect(line.locator("td").nth(6)).to_contain_text("after_grpo, 8 tasks")


def test_every_evaluation_of_a_stage_is_to_be_seen(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    plot = page.locator("figure[aria-label=Reward] .plot")
    for stretch, names in (
        ("grpo", {"after_sft, 8 tasks", "grpo@2, 8 tasks", "grpo@4, 8 tasks", "after_grpo, 8 tasks"}),
        ("whole run", {"base, 8 tasks"}),
    ):
        page.get_by_role("button", name=stretch).click()
        page.wait_for_function("(to) => location.hash.includes('from=') === to", arg=stretch == "grpo")
        drawn = "step of grpo" if stretch == "grpo" else "step"
        expect(plot.locator(".xtitle")).to_have_text(drawn)  # the address is there before the chart
        expect(plot.locator(".points path").first).to_be_visible()
        seen = plot.evaluate(
            """each => { const marks = each.data.find((one) => one.mode === "markers");
                 const [low, high] = each.layout.xaxis.range;
                 return marks.text.filter((_, i) => low <= marks.x[i] && marks.x[i] <= high); }"""
        )
        assert set(seen) >= names
        assert stretch == "whole run" or plot.evaluate("each => each.data[0].x[0]") == 4


def test_the_histogram_of_ratios_holds_every_scored_token(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    result = RunReader(rich).steps()[-1].facts["ratios"]
    boxes = page.locator("figure.chart", has_text="Ratios of the last step").locator(".plot")
    assert boxes.count() == len(result["epochs"]) == 2
    page.wait_for_function("() => document.querySelectorAll('.plot .bars').length > 1")
    for i, epoch in enumerate(result["epochs"]):
        bars = boxes.nth(i).evaluate("each => each.data.map((one) => Array.from(one.y))")
        signs = [dict(map(tuple, epoch[sign])) for sign in ("negative", "zero", "positive")]
        bins = len(result["edges"]) + 1
        assert bars == [[counts.get(place, 0) for place in range(bins)] for counts in signs]
        assert sum(map(sum, bars)) == epoch["scored"]
        limits = boxes.nth(i).evaluate("each => each.layout.shapes.map((one) => one.x0)")
        assert limits == pytest.approx([math.log(0.8), math.log(1.28)])


def test_a_click_on_a_point_opens_its_step(visit, rich):
    page = visit.go(f"#/run?run={rich.name}")
    box = page.get_by_role("figure", name="Reward", exact=True)
    box.scroll_into_view_if_needed()
    page.wait_for_selector("figure[aria-label=Reward][data-drawn]")  # from then on it listens
    x, y = box.locator(".plot").evaluate(
        """each => { const { xaxis, yaxis } = each._fullLayout, at = each.getBoundingClientRect();
             const lines = each.data.find((one) => one.mode !== "markers"), i = lines.x.length - 2;
             const x = at.x + xaxis._offset + xaxis.l2p(lines.x[i]);
             return [x, at.y + yaxis._offset + yaxis.l2p(lines.y[i])]; }"""
    )
    page.mouse.move(x - 1, y)
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    page.wait_for_selector('main[data-page="step"]')
    assert page.locator("h1").inner_text() == "grpo 4"


def test_two_clicks_zoom_out_and_open_nothing(visit, rich):
    page = visit.go(f"#/run?run={rich.name}&from=2&to=5")
    page.wait_for_selector("figure[aria-label=Reward][data-drawn]")
    page.locator("figure[aria-label=Reward]").scroll_into_view_if_needed()
    box = page.locator("figure[aria-label=Reward] .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 80)
    page.wait_for_function("() => !location.hash.includes('from=')")
    page.wait_for_timeout(400)  # longer than a click waits for its second
    assert "#/run?" in page.url


def test_a_zoom_is_in_the_address_and_comes_back(visit, rich):
    page = visit.go(f"#/run?run={rich.name}&from=2&to=5")
    plot = page.get_by_role("figure", name="Reward", exact=True).locator(".plot")
    page.wait_for_function("() => document.querySelector('figure[aria-label=Reward] .plot').data")
    lines, shown = plot.evaluate("each => [each.data[0].x, each.layout.xaxis.range]")
    assert (lines, shown) == ([4, 5], [2, 5])  # of the policy stage, which has rewards
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 62, steps=4)
    page.mouse.up()
    page.wait_for_function("() => /from=(3|4)&/.test(location.hash)")


def test_a_stylesheet_that_loads_late_leaves_no_plot_in_the_way_of_the_page(board, agent):
    """Without its rules, Plotly's layers lie below each other, out of the plot and over what follows it."""
    with visiting(board) as visit:
        visit.page.route("**/empty.css", lambda route: (time.sleep(2), route.continue_()))
        page = visit.go(f"#/run?run={agent.name}")
        page.wait_for_selector(".plot .main-svg")
        layers = page.locator(".plot .main-svg")
        styles = layers.evaluate_all("all => all.map((one) => getComputedStyle(one).position)")
        assert set(styles) == {"absolute"}
