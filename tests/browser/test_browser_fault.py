"""From the overview, a planted fault is three clicks away at most: its tokens marked, and its rule's page."""

from playwright.sync_api import expect
from recorded import samples_of

from truing.doctor.report.recorded_findings import recorded_findings
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
    (found,) = (each for each in recorded_findings(RunReader(planted).events()) if each.code == "MSK003")
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
    spans = found.marks[found.sample_id]
    assert marked == [t for start, end in spans for t in range(start, end)]
    expect(page.locator(f'.t[data-t="{found.start}"]')).to_be_in_viewport()
    row = next(
        each
        for each in samples_of(RunReader(planted).find_table("grpo", found.step))
        if each.sample_id == found.sample_id
    )
    assert not row.policy_mask[marked].any()
    assert row.token_gradient[marked].abs().min() > 0
    expect(page.locator(".card")).to_contain_text("MSK003")


def test_every_sample_that_is_meant_is_linked_and_marked_in_its_group_too(visit, planted):
    (found,) = (each for each in recorded_findings(RunReader(planted).events()) if each.code == "MSK003")
    assert len(found.marks) > 1
    page = visit.go(f"#/run?run={planted.name}")
    card = page.locator(".finding", has_text="MSK003")
    other = list(found.marks)[1]
    card.get_by_role("link", name=other, exact=True).click()
    page.wait_for_selector('main[data-page="sample"]')
    start, end = found.marks[other][0]
    expect(page.locator(f'.t.found.first[data-t="{start}"]')).to_be_in_viewport()
    expect(page.locator(f'.t.found.last[data-t="{end - 1}"]')).to_have_count(1)
    page.get_by_role("link", name="Compare group").click()
    page.wait_for_selector('main[data-page="group"]')
    by_sample = {
        section.locator("b a").inner_text(): section.locator(".t.found").count()
        for section in page.locator(".columns > section").all()
    }
    assert by_sample[other] == sum(end - start for start, end in found.marks[other])
    assert all(by_sample[name] == 0 for name in by_sample if name not in found.marks)


def test_a_group_has_a_card_and_arrows_walk_in_it(visit, planted):
    (found,) = (each for each in recorded_findings(RunReader(planted).events()) if each.code == "MSK003")
    rows = samples_of(RunReader(planted).find_table(found.stage, found.step))
    group = next(each.group_id for each in rows if each.sample_id == found.sample_id)
    at = f"run={planted.name}&stage={found.stage}&step={found.step + 1}"
    page = visit.go(f"#/group?{at}&group={group}&sample={found.sample_id}&token={found.start}")
    expect(page.locator(".card b").first).to_have_text(f"token {found.start}")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".card b").first).to_have_text(f"token {found.start + 1}")
    expect(page.locator(".t.at")).to_have_count(1)
    assert f"token={found.start + 1}" in page.url


def test_neighbours_are_a_key_away(visit, planted):
    names = [each.sample_id for each in samples_of(RunReader(planted).find_table("grpo", 0))]
    page = visit.go(f"#/sample?run={planted.name}&stage=grpo&step=1&sample={names[0]}")
    expect(page.locator("h1")).to_have_text(names[0])
    page.keyboard.press(".")
    expect(page.locator("h1")).to_have_text(names[1])
    page.keyboard.press(",")
    expect(page.locator("h1")).to_have_text(names[0])


def test_the_rule_that_fired_is_two_clicks_away(visit, planted):
    page = visit.go()
    click = Clicks(page)
    click(page.locator("tbody tr", has_text="planted").locator("a", has_text="MSK003"), "run")
    click(page.get_by_role("link", name="MSK003 gradient-not-as-declared"), "rule")
    assert click.count <= 3
    expect(page.locator("h2", has_text="Fix")).to_be_visible()


def test_every_run_reports_first_what_was_found_or_that_nothing_was(visit, rich, critic, agent, planted):
    for run in (rich, critic, agent, planted):
        page = visit.go(f"#/run?run={run.name}")
        expect(page.locator("h1")).to_have_text(run.name)
        result = page.locator(".finding:not(.clean) .row b").all_inner_texts()
        findings, facts = (
            [f"{each.code} {each.name}" for each in recorded_findings(RunReader(run).events(), kind)]
            for kind in ("finding", "fact")
        )
        assert result == findings + facts
        assert not (findings and page.locator(".finding.clean").count())
