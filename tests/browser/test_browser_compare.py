"""Two runs beside each other, whose stages have other lengths: what the page says, and where curves lie."""

import pytest
from playwright.sync_api import expect
from recorded import make_sample
from shown import changed, evaluation, opened_run, write
from visiting import served, visiting

VIEW = "#/compare?a=first&b=second"
PLOT = """(name) => {
  const { data, layout } = document.querySelector(`figure[aria-label="${name}"] .plot`);
  const list = (each) => each && Array.from(each);
  return { traces: data.map((each) => ({ x: list(each.x), y: list(each.y), at: list(each.customdata) })),
           marks: layout.shapes.map((each) => each.x0), stages: layout.annotations.map((each) => each.text),
           ink: layout.font.color };
}"""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Two of which the second has one step of SFT less, and two that differ in one token."""
    folder = tmp_path_factory.mktemp("beside")
    for name, taught, more in (("first", 3, 0.0), ("second", 2, 0.25)):
        with opened_run(folder / name, sft={"steps": taught}) as writer:
            for step in range(taught):
                rows = [make_sample(f"0/sft/{step}/0/0", 4)]
                write(writer, step, "sft", rows=rows, **{"loss/supervised": 1.0 - more})
            writer.write_event("eval", **evaluation("after_sft", 0.5 + more))
            for step in range(3):
                write(writer, step, **{"reward/mean": step + more})
            reward = {f"t{i}": 0.1 * i + more for i in range(8)}
            writer.write_event(
                "eval", **evaluation("after_grpo", 0.5 + more) | {"reward": reward, "failed": {}}
            )
    for name, token in (("seven", 7), ("eight", 8)):
        with opened_run(folder / name) as writer:
            write(writer, 0, rows=[changed(make_sample("0/grpo/0/0/0", 4), token_ids=[1, 2, token, 4])])
    with served(folder) as address:
        yield address


@pytest.fixture
def page(visit):
    """The page with its charts."""
    page = visit.go(VIEW)
    expect(page.locator("figure.chart[data-drawn]")).to_have_count(2)
    expect(page.get_by_text("comparing token by token")).to_have_count(0)  # it moves what is below
    return page


def test_it_begins_with_which_is_better(page):
    tile = page.locator(".tile", has_text="second − first")
    expect(tile).to_contain_text("+0.250")
    expect(tile).to_contain_text("the second is better, if differences are symmetric")
    expect(tile).to_contain_text("95 % over 8 tasks: up on 8, down on 0")
    rows = page.locator("h2:has-text('Which run is better') + div tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("no interval: only means are recorded")
    expect(rows.last).to_contain_text("after grpo")
    expect(
        page.get_by_text("Both runs have seed 0: one pair does not generalize to other seeds")
    ).to_be_visible()


def test_a_stage_begins_at_its_own_first_step_in_both(page):
    result = page.evaluate(PLOT, "reward/mean")
    first, second, *evaluations = result["traces"]
    assert (first["x"], first["y"], first["at"]) == ([1, 2, 3], [0, 1, 2], ["grpo 1", "grpo 2", "grpo 3"])
    assert (second["x"], second["y"], second["at"]) == ([1, 2, 3], [0.25, 1.25, 2.25], first["at"])
    assert [each["x"] for each in evaluations] == [[0, 3], [0, 3]]
    assert result["marks"] == result["stages"] == []
    supervised = page.locator('figure[aria-label="loss/supervised"]')
    expect(supervised).to_contain_text("Not recorded in grpo.")
    expect(supervised).to_contain_text("loss/supervised (nats/token)")


def test_over_the_whole_each_run_has_its_own_marks(page):
    page.get_by_role("button", name="whole runs").click()
    page.wait_for_function(f"({PLOT})('reward/mean').marks.length == 2")
    result = page.evaluate(PLOT, "reward/mean")
    assert result["marks"] == [3.5, 2.5]
    assert result["stages"] == ["sft", "grpo", "sft", "grpo"]
    assert [each["x"] for each in result["traces"]] == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [3, 6], [2, 5]]
    assert result["traces"][0]["at"][2:4] == ["sft 3", "grpo 1"]
    assert result["traces"][1]["at"][2:4] == ["grpo 1", "grpo 2"]


def test_what_hovers_says_the_step(page):
    area = page.locator('figure[aria-label="reward/mean"] .plot')
    drag = area.locator(".nsewdrag")
    drag.hover(position={"x": 0.6 * drag.bounding_box()["width"], "y": 20})
    expect(area.locator(".hoverlayer")).to_contain_text("step 2 of grpo")
    expect(area.locator(".hoverlayer")).to_contain_text("second : 1.250 at grpo 2")


def test_charts_turn_dark_with_the_page(page):
    light = page.evaluate(PLOT, "reward/mean")["ink"]
    page.keyboard.press("d")
    page.wait_for_function(f"(light) => ({PLOT})('reward/mean').ink !== light", arg=light)
    page.keyboard.press("d")


def test_the_first_answer_that_reads_otherwise_is_text(visit):
    page = visit.go("#/compare?a=seven&b=eight")
    expect(page.locator(".side mark")).to_have_text(["⟨7⟩", "⟨8⟩"])
    expect(page.locator(".side .excerpt")).to_have_text(["⟨1⟩⟨2⟩⟨7⟩⟨4⟩", "⟨1⟩⟨2⟩⟨8⟩⟨4⟩"])


def test_the_compared_runs_are_chosen_also_before_the_list_of_runs_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("truing.board.views.overview.READ_SECONDS", 0.0)
    for name in ("one", "two", "other"):
        with opened_run(tmp_path / name) as writer:
            write(writer, 0)
    with served(tmp_path) as address, visiting(address) as visit:
        page = visit.go("#/compare?a=one&b=two")
        for label, name in (("a", "one"), ("b", "two")):
            choice = page.get_by_label(label, exact=True)
            expect(choice).to_have_value(name)
            expect(choice.locator("option")).to_have_text(
                ["choose a run", "one", "two", "3 runs to read: open this page again"]
            )
