"""The rules on ranks: what each claims, and of which rank."""

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import with_ranks
from truing.doctor.rule_state import check, examine
from truing.doctor.rules import RULES, dst001, dst002, dst003, dst004, opt009, opt014


def claims(code, step):
    return [each.claim for each in examine(step, [RULES[code]])]


def ranks_with(**known):
    step = dst002.example()
    return changed_step(step, facts={"ranks": {"state": {}, "norms": [], "rows": [], **known}})


def test_one_process_has_nothing_to_compare():
    step = changed_step(dst001.example(), without=["ranks"])
    for code in ("DST001", "DST002", "DST003", "DST004"):
        assert check(step, RULES[code]) is None


def test_the_rank_that_differs_is_named_and_causes_come_before_results():
    state = {"policy weights": ["a", "a", "b"], "learning rates": [[1e-3], [1e-3], [2e-3]]}
    found = claims("DST001", ranks_with(state=state))
    assert [each.what for each in sorted(found, key=lambda each: -each.specificity)] == [
        "rank 2 has other learning rates than rank 0",
        "rank 2 has other policy weights than rank 0",
    ]
    assert "0.002" in found[1].got


@pytest.mark.parametrize("what", ["policy weights", "optimizer moments"])
def test_what_differs_before_a_step_explains_what_differs_after_it(what):
    names = ("sampler weights", "policy weights", "optimizer moments", f"{what} before the step")
    found = claims("DST001", ranks_with(state={name: ["a", "b"] for name in names}))
    assert max(found, key=lambda each: each.specificity).what == (
        f"rank 1 has other {what} before the step than rank 0"
    )


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ([[0.0], [0.0]], False),
        ([[0.0], [1e-9]], True),
        ([[1.0], [1.0, 1.0]], True),
        ([[-2.0], [2.0]], True),
        (["", "a"], True),
    ],
)
def test_values_are_compared_as_what_they_are(values, differs):
    assert bool(claims("DST001", ranks_with(state={"advantages": values}))) == differs


@pytest.mark.parametrize(
    ("draws", "named"),
    [
        ([[60, 0], [60, 55]], "rank 1"),
        ([[60, 58], [60, 0]], "rank 0"),
        ([[60, 58], [60, 55]], ""),  # of all ranks: SMP009
        ([[0, 0], [60, 55]], ""),  # no other rank to compare with
        ([[60, 0], [60, 20]], ""),  # another distribution: SMP009
        ([[16, 0], [16, 16]], "rank 1"),  # of an audit
        ([[16, 0], [16, 10]], ""),
        ([[24, 0], [4, 4]], ""),
    ],
)
def test_draws_of_one_rank_that_do_not_follow_from_random_numbers(draws, named):
    found = [each.what for each in claims("DST001", ranks_with(draws=draws))]
    assert found == ([f"{named} samples with undeclared random numbers"] if named else [])


@pytest.mark.parametrize(
    ("ranks", "who"),
    [([0, 1], "s3 was computed by ranks 0 and 1"), ([1], "s3 was computed by rank 1, twice")],
)
def test_a_doubled_row_has_its_ranks(ranks, who):
    rows = [dst003.NONE | {"of_rank": [], "twice": [["s3", ranks]], "twice_count": 1}]
    (found,) = claims("DST002", ranks_with(rows=rows))
    assert found.got == who


def test_examples_of_two_ranks_are_no_doubled_rows():
    rows = [dst003.NONE | {"of_rank": [], "shared": [["s1", [0, 1]]], "shared_count": 4}]
    (found,) = claims("DST002", ranks_with(rows=rows))
    assert found.what == "ranks 0 and 1 train on the same examples: 4 samples of the first"


@pytest.mark.parametrize(
    ("factors", "what"),
    [
        ((8 / 2, 8 / 6), "each rank divides its loss by its own samples, not by those of all ranks"),
        ((32 / 7, 32 / 25), "each rank divides its loss by its own tokens, not by those of all ranks"),
        # means of each rank that are averaged, as by DDP
        ((8 / 2 / 2, 8 / 6 / 2), "each rank divides its loss by its own samples, not by those of all ranks"),
        (
            (32 / 7 / 2, 32 / 25 / 2),
            "each rank divides its loss by its own tokens, not by those of all ranks",
        ),
        (
            (0.5, 0.5),
            "the loss is divided by the tokens or samples of all ranks, and once more by the 2 ranks",
        ),
        ((1.0, 0.5), "the token gradients of each rank have a factor of their own"),
        ((3.0, 3.0), ""),  # one factor for all is no rank's denominator: MSK003
        ((1.0, 1.0), ""),
    ],
)
def test_a_factor_of_each_rank(factors, what):
    assert [each.what for each in claims("DST003", dst003._scaled(*factors))] == ([what] if what else [])


def test_equal_shares_have_one_factor_and_are_still_a_denominator_of_the_rank():
    step = dst003._scaled(1.0, 1.0)
    names = [row.sample_id for row in step.samples]
    rows = [dst003.NONE | {"of_rank": [names[:4], names[4:]]}]
    facts = {"ranks": {"state": {}, "norms": [], "rows": rows}}
    step = changed_step(step, facts=facts, token_gradient=2 * step.tokens["token_gradient"])
    (found,) = claims("DST003", with_ranks(step, [0] * 4 + [1] * 4))
    assert "its own" in found.what


def test_a_factor_of_a_single_row_is_no_denominator_of_a_rank():
    step = dst003._scaled(1.0, 1.0)
    factor_N = torch.where(step.sample_of_token == 0, 0.5, 1.0)
    assert claims("DST003", changed_step(step, token_gradient=step.tokens["token_gradient"] * factor_N)) == []


def test_norms_of_the_critic_count_too():
    (found,) = claims("DST004", ranks_with(norms=[[[1.0, 2.0]], [[1.0, 3.0]]]))
    assert "critic" in found.what
    assert claims("DST004", ranks_with(norms=[[[]], [[]]])) == []  # a skipped optimizer step has none
    assert claims("DST004", dst004.rounded()) == []


@pytest.mark.parametrize(
    ("known", "numbers", "what"),
    [
        ({"factor": 0.5, "ranks": 2}, {}, "all gradients were averaged over 2 ranks, not summed"),
        (
            {"factor": 0.5, "ranks": 3},
            {},
            "all gradients have another factor than the clip by the recorded norm",
        ),
        ({"factor": 0.5}, {}, "all gradients have another factor than the clip by the recorded norm"),
        (
            {"critic_factor": 0.25, "ranks": 2},
            {"grad/critic_norm": 2.0},
            "all gradients of the critic were averaged over 2 ranks, not summed",
        ),
        ({"critic_factor": 0.5, "ranks": 2}, {"grad/critic_norm": 2.0}, ""),
        ({"critic_factor": None, "ranks": 2}, {"grad/critic_norm": 0.0}, ""),
    ],
)
def test_an_average_over_ranks_is_named(known, numbers, what):
    step = changed_step(opt014._handed(**known), metrics=numbers)
    assert [each.what for each in claims("OPT014", step)] == ([what] if what else [])


EXACT, FAR = {"difference": 1e-7, "cosine": 1.0}, {"difference": 0.5, "cosine": 0.7}


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (
            {"ranks": 2, "own": [EXACT, FAR], **FAR},
            "on rank 0 it is that of the rank's own samples, not averaged",
        ),
        ({"ranks": 2, "own": [EXACT, EXACT], **FAR}, "on rank 0, 1 it is that of the rank's own samples"),
        (
            {"ranks": 2, "own": [FAR, FAR], "trainer": 1.0, "difference": 0.5},
            "it is 2 times as long, as with a sum over ranks, not an average",
        ),
        (
            {"ranks": 2, "own": [FAR, FAR], "trainer": 0.25, "difference": 0.25},
            "it is 1/2 as long, as with a second average over ranks",
        ),
        (
            {"ranks": 3, "own": [FAR] * 3, "trainer": 1.0, "difference": 0.5},
            "2 times as long, as with a wrong",
        ),
        ({"ranks": 2, "own": [FAR, FAR], "cosine": -1.0, "difference": 1.0}, "opposite direction"),
        ({"ranks": 2, "own": [FAR, FAR]}, ""),
        # equal rows on both ranks: each gradient is that of its own rows, and of all
        ({"ranks": 2, "own": [EXACT, EXACT]}, ""),
    ],
)
def test_a_gradient_that_was_not_averaged_over_ranks_is_named(known, what):
    found = [each.what for each in claims("OPT009", opt009._of(**known))]
    assert len(found) == bool(what)
    assert all(what in each for each in found)
