"""From the overview, a planted fault is three clicks away at most: its tokens marked, and its rule's page."""

from playwright.sync_api import expect

from truing.doctor.recall import recalled
from truing.record import RunReader


class Clicks:
    """A hand that counts."""

    def __init__(self, page) -> None:
        self.page, self.count = page, 0

    def __call__(self, place, lands) -> None:
        place.click()
        self.count += 1
        self.page.wait_for_selector(f'main[data-page="{lands}"]')


def test_the_tokens_that_are_meant_are_marked_within_three_clicks(visit, planted):
    (found,) = (each for each in recalled(RunReader(planted).events()) if each.code == "MSK003")
    page = visit.go()
    line = page.locator("tbody tr", has_text="planted")
    expect(line.locator(".state")).to_have_text("stopped by a finding")
    click = Clicks(page)
    click(line.locator("a", has_text="MSK003"), "run")
    excerpt = page.locator(".finding .excerpt mark")
    expect(excerpt.first).to_be_visible()  # the text that is meant, already on the run's first screen
    assert excerpt.first.bounding_box()["y"] < 768
    click(page.locator(".finding", has_text="MSK003").locator("a", has_text=found.sample_id), "sample")
    assert click.count <= 3
    marked = page.locator(".t.found").evaluate_all("all => all.map((one) => Number(one.dataset.t))")
    assert marked == list(range(found.start, found.end))
    expect(page.locator(f'.t[data-t="{found.start}"]')).to_be_in_viewport()
    row = next(
        each
        for each in RunReader(planted).samples("grpo", found.step)
        if each.sample.sample_id == found.sample_id
    )
    assert not row.sample.policy_mask[found.start : found.end].any()
    assert row.pull[found.start : found.end].abs().min() > 0
    expect(page.locator(".card")).to_contain_text("MSK003")


def test_the_rule_that_fired_is_two_clicks_away(visit, planted):
    page = visit.go()
    click = Clicks(page)
    click(page.locator("tbody tr", has_text="planted").locator("a", has_text="MSK003"), "run")
    click(page.get_by_role("link", name="MSK003 gradient-not-as-declared"), "rule")
    assert click.count <= 3
    expect(page.locator("h2", has_text="Fix")).to_be_visible()


def test_every_run_tells_first_what_was_found_or_that_nothing_was(visit, rich, critic, agent, planted):
    for run in (rich, critic, agent, planted):
        page = visit.go(f"#/run?run={run.name}")
        expect(page.locator("h1")).to_have_text(run.name)
        told = page.locator(".finding:not(.clean) b").all_inner_texts()
        assert told == [f"{each.code} {each.name}" for each in recalled(RunReader(run).events())]
        assert page.locator(".finding.clean").count() == (not told)
