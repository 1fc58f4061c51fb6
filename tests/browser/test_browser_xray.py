"""The x-ray of a rollout of several turns with tools, token by token against the record."""

import pytest
from playwright.sync_api import expect
from recorded import samples_of
from visiting import visiting

from truing.record import RunReader
from truing.types.token import Origin

TOKENS = """() => [...document.querySelectorAll(".xray .t[data-t]")].map((each) => [
  Number(each.dataset.t), [...each.classList], getComputedStyle(each).textDecorationLine,
  each.style.background])"""


@pytest.fixture(scope="module")
def row(agent):
    """The longest rollout of the first policy step: turns of its own, and what tools answered."""
    rows = samples_of(RunReader(agent).find_table("grpo", 0))
    result = max(rows, key=lambda each: (len(each.turns), len(each)))
    origins = set(result.origin.tolist())
    assert len(result.turns) > 1
    assert {Origin.PROMPT, Origin.TEMPLATE, Origin.TOOL, Origin.SAMPLED} <= origins
    return result


@pytest.fixture
def sample(visit, row):
    """Its page."""
    name = row.sample_id
    return visit.go(f"#/sample?run=agent&stage=grpo&step=1&sample={name}")


def tokens(page):
    return page.evaluate(TOKENS)


def test_every_token_has_its_origin_and_is_underlined_where_it_was_trained(sample, row):
    result = tokens(sample)
    assert [each[0] for each in result] == list(range(len(row)))
    for t, classes, line, _ in result:
        assert Origin(int(row.origin[t])).name in classes, t
        assert (line == "underline") == bool(row.policy_mask[t]), t
    drawn = [t for t, classes, *_ in result if "trained" in classes]
    assert drawn == row.policy_mask.nonzero().flatten().tolist()
    assert sample.locator(".turn.own").count() == len(row.turns)
    assert sample.locator(".turn").count() >= 2 * len(row.turns)


def test_what_was_clipped_is_reported(sample, row):
    log = row.new_logprob - row.old_logprob
    ratio, up = log.exp(), row.advantage > 0
    clipped = row.policy_mask & ((up & (ratio > 1.28)) | (~up & (ratio < 0.8)))
    assert [
        t for t, classes, *_ in tokens(sample) if "clipped" in classes
    ] == clipped.nonzero().flatten().tolist()


def card_numbers(page):
    """The card's table, by the name of the number."""
    rows = page.locator(".card tbody tr").evaluate_all(
        "all => all.map((one) => [...one.children].map((td) => td.innerText))"
    )
    return dict(rows)


def close(text, value):
    """A number as the page writes it, to its digits."""
    return float(text.replace("−", "-")) == pytest.approx(value, rel=6e-4 if "e" in text else 6e-5)


def test_the_card_says_what_the_record_says_of_a_token(sample, row):
    t = int(row.turns[-1].start) + 1
    sample.locator(f'[data-t="{t}"]').hover()
    card = sample.locator(".card")
    expect(card).to_contain_text(f"token {t}")
    expect(card).to_contain_text(f"id {int(row.token_ids[t])}")
    result = card_numbers(sample)
    drawn = {"sampler": row.sampler_logprob, "old": row.old_logprob, "new": row.new_logprob}
    drawn |= {"reference": row.ref_logprob}
    streams = {f"log-prob., {name}": stream for name, stream in drawn.items()}
    streams |= {"entropy": row.entropy, "raw entropy": row.raw_entropy}
    streams |= {
        "advantage": row.advantage,
        "token gradient": row.token_gradient,
        "log ratio": row.new_logprob - row.old_logprob,
    }
    for name, stream in streams.items():
        assert close(result[name], float(stream[t])), name
    tool = int((row.origin == Origin.TOOL).nonzero()[0])
    sample.locator(f'[data-t="{tool}"]').hover()
    expect(card).to_contain_text("not trained: not sampled by the policy")
    assert card_numbers(sample)["log-prob., sampler"] == "–"


def test_tints_follow_their_numbers(sample, row):
    assert not any(paint for *_, paint in tokens(sample))
    for tint in ("advantage", "log_ratio", "entropy", "kl", "token_gradient"):
        sample.get_by_label("tint").select_option(tint)
        painted = {t for t, _, _, paint in tokens(sample) if paint}
        assert painted, tint
        assert all(bool(row.policy_mask[t]) for t in painted), tint
        assert f"tint={tint}" in sample.url
    sample.keyboard.press("t")
    expect(sample.get_by_label("tint")).to_have_value("none")


def test_arrows_walk_and_the_link_makes_the_same_view_again(sample, row, board):
    first = int(row.turns[0].start)
    sample.get_by_label("tint").select_option("entropy")
    sample.locator("main").focus()
    for _ in range(3):
        sample.keyboard.press("ArrowRight")
    sample.keyboard.press("ArrowLeft")
    at = sample.locator(".t.at")
    expect(at).to_have_attribute("data-t", str(first + 1))
    expect(sample.locator(".card")).to_contain_text(f"token {first + 1}")
    before = tokens(sample), card_numbers(sample)
    with visiting(board) as other:
        page = other.go(sample.url.removeprefix(board))
        expect(page.locator(".t.at")).to_have_attribute("data-t", str(first + 1))
        expect(page.get_by_label("tint")).to_have_value("entropy")
        assert (tokens(page), card_numbers(page)) == before


def test_a_group_stands_side_by_side_best_first(visit, agent):
    rows = samples_of(RunReader(agent).find_table("grpo", 0))
    group = rows[0].group_id
    own = sorted((each for each in rows if each.group_id == group), key=lambda each: -each.reward)
    page = visit.go("#/step?run=agent&stage=grpo&step=1")
    page.get_by_role("link", name="compare group").first.click()
    page.wait_for_selector('main[data-page="group"]')
    columns = page.locator(".columns > section")
    assert columns.locator("b a").all_inner_texts() == [each.sample_id for each in own]
    counts = columns.evaluate_all("all => all.map((one) => one.querySelectorAll('.t').length)")
    assert counts == [len(each) for each in own]
    assert len({each.reward for each in own}) > 1
    page.get_by_label("tint").select_option("advantage")
    assert page.locator(".columns .t[style]").count() > 0
