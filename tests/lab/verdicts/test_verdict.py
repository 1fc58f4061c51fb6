"""Verdicts: each name, by pairs, by a check and by a prior; and facts that are JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from labs import HEADER, declared, lab_in, run_of, with_runs

from truing.envs import env_from_recipe
from truing.lab.report.text import verdict_lines
from truing.lab.run.design import BASELINE, baseline_of, resolve_arm
from truing.lab.stats import e_process
from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.noise import noise_of
from truing.lab.stats.pairs import Pair
from truing.lab.stats.sensitivity import min_detectable_effect
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, History, Ledger, Run
from truing.lab.verdicts.decide import decide
from truing.lab.verdicts.verdict import check_verdict, judge
from truing.rewards import reward_range

ERROR = 0.025  # family = 1
ENOUGH = min_pairs(ERROR)
CHECK = """
[check]
rules = ["LEN"]
settles = true
"""


@pytest.fixture
def made(tmp_path):
    """A declared lab of one hypothesis, by its header."""

    def make(header: str = HEADER, settings: str = "family = 1") -> tuple[Lab, Hypothesis]:
        lab = lab_in(tmp_path, {"h01": header}, settings)
        return declared(lab, lab.hypothesis("h01")), lab.hypothesis("h01")

    return make


def verdict(lab, hypothesis, **values):
    return judge(with_runs(lab, hypothesis, values), hypothesis)


def header(confirm, refute, arms=('changed = ["grpo.learning_rate=2e-3"]',), **facts):
    lines = [line for line in HEADER.splitlines() if not line.startswith(("confirm", "refute", *facts))]
    lines = lines[: lines.index("[arms]")]
    extra = [f"{name} = {value}" for name, value in facts.items()]
    return "\n".join([*lines, *extra, f"confirm = [{confirm}]", f"refute = [{refute}]", "[arms]", *arms])


def crit(arm, **bound):
    ((name, value),) = bound.items()
    about = f'arm = "{arm}", ' if arm else ""
    return f'{{ metric = "eval/reward", {about}{name} = {value} }}'


ARMS = ('a = ["grpo.learning_rate=2e-3"]', 'b = ["grpo.learning_rate=3e-3"]')


# By pairs.


def test_pending(tmp_path):
    lab = lab_in(tmp_path)
    result = judge(lab, lab.hypothesis("h01"))
    assert (result.verdict, result.because, result.by) == ("PENDING", "no run yet", "")
    assert (result.pairs, result.low, result.high) == (0, -math.inf, math.inf)
    assert math.isnan(result.effect)
    assert [each.state for each in result.criteria] == ["open", "open"]
    assert [each.confirms for each in result.criteria] == [True, False]
    assert result.criteria_met is None
    assert not result.settled
    assert result.error == ERROR
    assert result.arm == "changed"


def test_testing(made):
    result = verdict(*made(), changed=[1.0, 1.1])
    assert (result.verdict, result.because, result.by) == ("TESTING", "2 of 10 pairs", "experiment")
    assert result.effect == pytest.approx(1.05)
    assert (result.low, result.high) == (-math.inf, math.inf)
    assert not result.settled
    assert (result.quality, result.quality_because) == ("–", "it is running")


def test_testing_where_only_the_baseline_ran(made):
    lab, hypothesis = made()
    result = judge(lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0)), hypothesis)
    assert (result.verdict, result.because) == ("TESTING", "0 of 10 pairs")


def test_validated(made):
    values = [1.0, 1.2, 0.9, 1.1, 1.0, 1.05, 0.95][:ENOUGH]
    result = verdict(*made(), changed=values)
    assert result.verdict == "VALIDATED"
    assert result.because == "proven: eval/reward, changed − baseline > 0"
    assert [each.state for each in result.criteria] == ["met", "contradicted"]
    assert result.criteria_met is True
    assert result.settled
    assert result.effect == pytest.approx(np.mean(values))
    assert result.low == e_process.lower_bound(values, ERROR) > 0
    assert result.high == e_process.upper_bound(values, ERROR)
    assert result.pairs == ENOUGH
    assert result.notes == ()


def test_one_pair_fewer_is_not_enough(made):
    assert verdict(*made(), changed=[1.0] * (ENOUGH - 1)).verdict == "TESTING"


def test_invalidated(made):
    result = verdict(*made(), changed=[0.1, -0.1, 0.0, 0.05, -0.05, 0.02, 0.01, -0.02])
    assert result.verdict == "INVALIDATED"
    assert result.because == "proven: eval/reward, changed − baseline < 0.5"
    assert result.settled


def test_what_harms_is_invalidated_and_its_criterion_contradicted(made):
    result = verdict(*made(), changed=[-1.0 - 0.1 * (i % 3) for i in range(8)])
    assert result.verdict == "INVALIDATED"
    assert result.criteria_met is False


def test_refute_wins_over_confirm(made):
    """An effect that is there, and proven to be too small to matter."""
    result = verdict(*made(), changed=[0.2, 0.21, 0.19, 0.2, 0.22, 0.18, 0.2, 0.2])
    assert [each.state for each in result.criteria] == ["met", "met"]
    assert result.verdict == "INVALIDATED"
    assert result.criteria_met is True


def test_a_verdict_is_not_taken_back_by_its_own_criterion(made):
    """Pairs that were in flight when it was proven."""
    won = [1.0] * ENOUGH
    assert verdict(*made(), changed=won).verdict == "VALIDATED"
    assert verdict(*made(), changed=[*won, -2.0, -2.0]).verdict == "VALIDATED"


def test_pairs_beyond_the_seeds_that_were_declared_do_not_count(made):
    values = [0.1, 1.0, -0.2, 0.9, 0.3, 0.6, -0.1, 0.8, 0.2, 0.7]
    result = verdict(*made(), changed=[*values, *[50.0] * 20])
    assert result.pairs == 10
    assert result.verdict == "INCONCLUSIVE"


def test_validated_in_part(made):
    """a is proven to help, b to harm."""
    both = header(crit("a", above=0) + ", " + crit("b", above=0), crit("", below=-3), ARMS)
    enough = min_pairs(ERROR / 2)
    result = verdict(*made(both), a=[1.0] * enough, b=[-1.0] * enough)
    assert result.verdict == "PARTIALLY VALIDATED"
    assert result.because == "only in part: eval/reward, a − baseline > 0"
    assert [each.state for each in result.criteria][:2] == ["met", "contradicted"]
    assert result.criteria_met is False
    assert result.settled


def test_a_part_needs_its_share_of_the_error(made):
    """Of two, either would do: at the whole error a is met, at half of it not yet."""
    both = header(crit("a", above=0) + ", " + crit("b", above=0), crit("", below=-3), ARMS)
    assert min_pairs(ERROR / 2) > ENOUGH
    result = verdict(*made(both), a=[1.0] * ENOUGH, b=[-1.0] * ENOUGH)
    assert [each.state for each in result.criteria][:2] == ["met", "contradicted"]
    assert result.verdict == "TESTING"


def test_validated_in_part_where_the_rest_stays_open(made):
    both = header(crit("a", above=0) + ", " + crit("b", above=0), crit("", below=-3), ARMS)
    result = verdict(*made(both), a=[1.0] * 10, b=[1.0, -1.0] * 5)
    assert result.verdict == "PARTIALLY VALIDATED"
    assert result.criteria_met is None


def test_all_that_confirms_must_be_met(made):
    both = header(crit("a", above=0) + ", " + crit("b", above=0), crit("", below=-3), ARMS)
    assert verdict(*made(both), a=[1.0] * ENOUGH, b=[1.0] * ENOUGH).verdict == "VALIDATED"


def test_any_refutation_is_enough_at_its_share(made):
    two = header(crit("a", above=0), crit("a", below=0.5) + ", " + crit("b", below=0.5), ARMS)
    enough = min_pairs(ERROR / 2)
    lab, hypothesis = made(two)
    assert verdict(lab, hypothesis, a=[0.4, -0.4] * 3, b=[-1.0] * (enough - 1)).verdict == "TESTING"
    assert (
        verdict(lab, hypothesis, a=[0.4, -0.4, *[0.4, -0.4] * 3], b=[-1.0] * enough).verdict == "INVALIDATED"
    )


def test_inconclusive_after_all_seeds(made):
    """Near enough to the last pair that it is not hopeless before."""
    values = [0.25, 0.9, -0.3, 1.0, 0.25, 0.6, 0.1, 0.9, -0.2, 0.3]
    result = verdict(*made(), changed=values)
    assert (result.verdict, result.because) == ("INCONCLUSIVE", "10 pairs settle no criterion")
    assert (result.quality, result.quality_because) == ("low", "nothing is decided")
    assert result.settled
    assert result.criteria_met is None


def test_inconclusive_as_soon_as_it_is_hopeless(made):
    values = [1.5, -0.5, 1.5, -0.5, 1.5, -0.5, 1.5, -0.5, 1.5]
    lab, hypothesis = made()
    stopped = next(
        n for n in range(1, 10) if verdict(lab, hypothesis, changed=values[:n]).verdict == "INCONCLUSIVE"
    )
    result = verdict(lab, hypothesis, changed=values[:stopped])
    assert stopped < 10
    assert result.because == f"after {stopped} pairs, the remaining ones can settle no criterion"
    for bound in (0.0, 0.5):
        assert e_process.is_futile(values[:stopped], bound, 10, ERROR)
    assert not all(e_process.is_futile(values[: stopped - 1], bound, 10, ERROR) for bound in (0.0, 0.5))


@pytest.mark.parametrize("outcome", ["crashed", "proven"])
@pytest.mark.parametrize("label", [BASELINE, "changed"])
def test_inconclusive_after_a_run_that_failed(made, label, outcome):
    lab, hypothesis = made()
    lab = with_runs(lab, hypothesis, {"changed": [1.0] * 3})
    lab = lab.with_entry(run_of(lab, hypothesis, label, 3, 0.0, outcome=outcome, error="out of memory"))
    result = judge(lab, hypothesis)
    assert (result.verdict, result.pairs) == ("INCONCLUSIVE", 3)
    assert result.because == f"{label}, seed 3, {outcome}: out of memory"
    assert result.notes == (result.because,)
    again = lab.with_entry(run_of(lab, hypothesis, label, 3, 0.0 if label == BASELINE else 1.0))
    assert judge(again, hypothesis).verdict == "TESTING"


def test_what_is_proven_before_a_crash_stays_proven_with_a_lower_quality(made):
    lab, hypothesis = made()
    lab = with_runs(lab, hypothesis, {"changed": [1.0] * 8})
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 8, 0.0, outcome="crashed", error="x"))
    result = judge(lab, hypothesis)
    assert result.verdict == "VALIDATED"
    assert "1 run failed" in result.quality_because
    assert result.notes == ("changed, seed 8, crashed: x",)


def test_an_arm_goes_on_where_another_failed(made):
    any_arm = header(crit("", above=0), crit("", below=0.5), ARMS)
    lab, hypothesis = made(any_arm)
    lab = with_runs(lab, hypothesis, {"b": [1.0, 1.0]})
    lab = lab.with_entry(run_of(lab, hypothesis, "a", 0, 0.0, outcome="crashed", error="x"))
    assert judge(lab, hypothesis).verdict == "TESTING"
    result = verdict(lab, hypothesis, b=[1.0] * min_pairs(ERROR / 2))
    assert (result.verdict, result.arm, result.pairs) == ("VALIDATED", "b", min_pairs(ERROR / 2))


def test_the_effect_is_of_the_arm_that_confirms(made):
    """Its bounds have the share of an arm, for results chose it."""
    any_arm = header(crit("", above=0), crit("", below=-3), ARMS)
    values = [1.0, 1.3, 0.8, 1.2, 1.1, 0.9, 1.0, 1.4]
    result = verdict(*made(any_arm), a=[-1.0] * 8, b=values)
    assert (result.verdict, result.arm) == ("VALIDATED", "b")
    assert result.effect == pytest.approx(np.mean(values))
    assert result.low == e_process.lower_bound(values, ERROR / 2) > 0


def test_the_effect_is_of_the_arm_that_confirms_in_part(made):
    both = header(crit("a", above=0) + ", " + crit("b", above=0), crit("", below=-3), ARMS)
    result = verdict(*made(both), a=[-1.0] * 8, b=[1.0] * 8)
    assert (result.verdict, result.arm, result.effect) == ("PARTIALLY VALIDATED", "b", 1.0)


def test_the_effect_is_of_the_first_arm_while_none_confirms(made):
    any_arm = header(crit("", above=0), crit("", below=-3), ARMS)
    assert verdict(*made(any_arm), a=[0.1, 0.2], b=[1.0, 1.0]).arm == "a"


def test_what_another_hypothesis_called_its_arm_is_nothing_to_this_one(tmp_path):
    """h02's `changed` is what crashed for h01 as `other`; its `other` is sound."""
    two = ('changed = ["grpo.learning_rate=2e-3"]', 'other = ["grpo.learning_rate=3e-3"]')
    turned = ('changed = ["grpo.learning_rate=3e-3"]', 'other = ["grpo.learning_rate=2e-3"]')
    headers = {
        name: header(crit("", above=0), crit("", below=0.5), arms)
        for name, arms in (("h01", two), ("h02", turned))
    }
    lab = lab_in(tmp_path, headers, "family = 2")
    first, second = lab.hypothesis("h01"), lab.hypothesis("h02")
    lab = declared(declared(lab, first), second)
    lab = lab.with_entry(run_of(lab, first, BASELINE, 0, 0.0))
    lab = lab.with_entry(run_of(lab, first, "other", 0, 0.0, outcome="crashed", error="x"))
    assert judge(lab, second).notes == ("changed, seed 0, crashed: x",)
    lab = with_runs(lab, second, {"other": [1.0] * min_pairs(0.05 / 3 / 2)})
    assert judge(lab, second).verdict == "VALIDATED"


def test_inconclusive_where_pairs_cannot_be_compared(made):
    lab, hypothesis = made()
    lab = with_runs(lab, hypothesis, {"changed": [1.0] * 8})
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 8, 0.0))
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 8, 1.0, tasks={"other": 1.0}))
    result = judge(lab, hypothesis)
    assert result.verdict == "INCONCLUSIVE"
    assert "changed was evaluated on other tasks" in result.because
    assert result.quality == "low"
    assert math.isnan(result.effect)


def test_inconclusive_where_a_metric_of_a_criterion_lacks(made):
    asked = header('{ metric = "length/mean", arm = "changed", below = 0 }', crit("changed", below=0.5))
    result = verdict(*made(asked), changed=[1.0])
    assert result.verdict == "INCONCLUSIVE"
    assert "length/mean was not measured" in result.because


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_inconclusive_where_a_result_is_no_number(made, value):
    result = verdict(*made(), changed=[1.0] * 7 + [value])
    assert result.verdict == "INCONCLUSIVE"
    assert f"seed 7: eval/reward is {value} in changed" in result.because


def test_judged_by_what_was_declared(tmp_path):
    """Its file says otherwise after the first run: that is noted, and changes nothing else."""
    lab = lab_in(tmp_path)
    lab = declared(lab, lab.hypothesis("h01"))
    lenient = HEADER.replace("above = 0.0", "above = -9.0").replace("seeds = 10", "seeds = 40")
    changed = replace(lab_in(tmp_path, {"h01": lenient}), history=lab.history)
    hypothesis = lab.hypothesis("h01")
    values = {"changed": [-1.0, 0.9, -0.8, 0.9, -1.0, 1.0]}
    before = judge(with_runs(lab, hypothesis, values), hypothesis)
    after = judge(with_runs(changed, hypothesis, values), changed.hypothesis("h01"))
    assert before.notes == ()
    assert "judged by what was declared before the first run" in after.notes[0]
    assert replace(after, notes=()) == before
    assert after.seeds == 10


def test_the_error_is_the_one_that_was_declared(made, tmp_path):
    lab, hypothesis = made()
    lenient = replace(lab_in(tmp_path, settings="family = 1\nerror = 0.4"), history=lab.history)
    assert judge(lenient, hypothesis).error == ERROR
    assert verdict(lenient, hypothesis, changed=[1.0] * (ENOUGH - 1)).verdict == "TESTING"


def test_the_smallest_effect_that_is_seen(made):
    lab, hypothesis = made()
    result = judge(lab, hypothesis)
    noise = noise_of(lab, hypothesis, hypothesis.header)
    assert result.mde == min_detectable_effect(hypothesis.header, noise, ERROR, {}) > 0


# Priors.


PRIOR = '\n[prior]\nverdict = "VALIDATED"\nnote = "it helped"\nsource = "a notebook"\n'


def test_a_prior_is_not_settled(tmp_path):
    lab = lab_in(tmp_path, {"h01": HEADER + PRIOR})
    result = judge(lab, lab.hypothesis("h01"))
    assert (result.verdict, result.by, result.quality) == ("VALIDATED", "prior", "low")
    assert result.because == "it helped (a notebook)"
    assert not result.settled


def test_a_prior_ends_with_the_first_run(made):
    assert verdict(*made(HEADER + PRIOR), changed=[1.0]).verdict == "TESTING"


# By a check.


def checked(proven=(), clean=("LEN001",), suspected=(), measures=None, **facts):
    strengths = [("PROVEN", proven), ("CLEAN", clean), ("SUSPECT", suspected)]
    results = {code: [strength, "x"] for strength, codes in strengths for code in codes}
    return CheckResult("h01", "r", "c", results, measures or {}, 1.0, **facts)


def by_check(tmp_path, entry, check=CHECK):
    lab = lab_in(tmp_path, {"h01": HEADER + check}).with_entry(entry)
    return judge(lab, lab.hypothesis("h01"))


def test_proven_by_a_check(tmp_path):
    for check in (CHECK, CHECK.replace("true", "false")):
        result = by_check(tmp_path, checked(["LEN001", "LEN002"], (), ["LEN003"]), check)
        assert (result.verdict, result.by, result.quality) == ("VALIDATED", "proof", "high")
        assert result.because == "LEN001: x; LEN002: x"
        assert result.settled


def test_clean_and_that_settles_it(tmp_path):
    result = by_check(tmp_path, checked(clean=["LEN001", "LEN002"]))
    assert (result.verdict, result.by) == ("INVALIDATED", "proof")
    assert result.because == "LEN001, LEN002 found nothing"


def test_a_rule_that_applies_to_no_step_leaves_the_others_to_settle_it(tmp_path):
    two = CHECK.replace('["LEN"]', '["LEN001", "MSK007"]')
    result = by_check(tmp_path, checked(clean=["LEN001"]), two)
    assert (result.verdict, result.by) == ("INVALIDATED", "proof")
    assert result.because == "LEN001 found nothing; MSK007 (no step that it applies to)"
    open_ = by_check(tmp_path, checked(clean=[]), two)
    assert open_.verdict == "PENDING"
    assert open_.notes[0].count("MSK007") == 1, "told once"
    statistical = CHECK.replace('["LEN"]', '["MSK003", "TPL001"]')
    because = by_check(tmp_path, checked(clean=["MSK003"]), statistical).because
    assert because == "MSK003 found nothing; TPL001 (statistical: no check has it)"


def test_clean_and_that_only_narrows_it(tmp_path):
    result = by_check(tmp_path, checked(), CHECK.replace("true", "false"))
    assert result.verdict == "PENDING"
    assert result.notes[0] == "the check: LEN001 found nothing"


def test_what_is_not_settled_does_not_refute(tmp_path):
    result = by_check(tmp_path, checked(suspected=["LEN002"]))
    assert result.verdict == "PENDING"
    assert result.notes[0] == "the check: LEN001 found nothing; LEN002 (SUSPECT: x)"


MEASURES = """
[check]
measures = [{ metric = "length/mean", below = 3.0 }, { metric = "kl_all/k3", below = 0.1 }]
settles = true
"""


@pytest.mark.parametrize(
    ("measures", "settled"),
    [
        ({"length/mean": 2.9, "kl_all/k3": 0.05}, True),
        ({"length/mean": 3.0, "kl_all/k3": 0.05}, False),
        ({"length/mean": 9.0, "kl_all/k3": 0.05}, False),
        ({"length/mean": 2.9}, False),
        ({"length/mean": 2.9, "kl_all/k3": math.nan}, False),
        ({"length/mean": 2.9, "kl_all/k3": math.inf}, False),
    ],
)
def test_measures_rule_it_out_where_all_are_below(tmp_path, measures, settled):
    """One that lacks, or is no number, rules nothing out."""
    result = by_check(tmp_path, checked(clean=(), measures=measures), MEASURES)
    assert result.verdict == ("INVALIDATED" if settled else "PENDING")
    if settled:
        assert result.because == "length/mean is 2.9; kl_all/k3 is 0.05"


def test_a_check_of_a_header_that_has_none_by_now(tmp_path):
    """Results are kept of every rule, and judged by what the header asks for now."""
    lab = lab_in(tmp_path)
    header = lab.hypothesis("h01").header
    assert check_verdict(header, checked(["LEN001"], ())) is None
    result = by_check(tmp_path / "asked", checked(["LEN001"], ["MSK003"]), CHECK.replace("LEN", "MSK003"))
    assert result.verdict == "INVALIDATED"


def test_the_last_check_counts(tmp_path):
    lab = lab_in(tmp_path, {"h01": HEADER + CHECK}).with_entry(checked()).with_entry(checked(["LEN001"], ()))
    assert judge(lab, lab.hypothesis("h01")).verdict == "VALIDATED"


def test_pairs_that_decide_are_above_a_check(made):
    """A clean check would refute; pairs that prove an effect say otherwise, and both are told."""
    lab, hypothesis = made(HEADER + CHECK)
    result = verdict(lab.with_entry(checked()), hypothesis, changed=[1.0] * 8)
    assert (result.verdict, result.by) == ("VALIDATED", "experiment")
    assert result.notes[0] == "the check: LEN001 found nothing"


def test_a_check_decides_where_pairs_do_not(made):
    lab, hypothesis = made(HEADER + CHECK)
    result = verdict(lab.with_entry(checked()), hypothesis, changed=[1.5, -0.5] * 5)
    assert (result.verdict, result.by, result.pairs) == ("INVALIDATED", "proof", 10)
    assert result.quality_because == "an exact check"


# Facts.


@pytest.mark.parametrize("values", [None, [], [1.0], [1.0] * 8, [math.nan]])
def test_facts_are_json(made, values):
    lab, hypothesis = made()
    found = (
        judge(lab, hypothesis)
        if values is None
        else judge(with_runs(lab, hypothesis, {"changed": values}), hypothesis)
    )
    facts = json.loads(json.dumps(found.facts(), allow_nan=False))
    assert {"verdict", "effect", "low", "high", "mde", "criteria_met"} <= facts.keys()
    assert facts["verdict"] == found.verdict
    for name in ("effect", "low", "high", "mde"):
        value = getattr(found, name)
        assert facts[name] == (value if math.isfinite(value) else None)
    assert facts["criteria_met"] is found.criteria_met
    assert [each["state"] for each in facts["criteria"]] == [each.state for each in found.criteria]


# The whole lab, under the null.


@pytest.mark.slow
def test_a_lab_of_arms_that_do_nothing_validates_seldom(made):
    """Through `judge`, with pairs of a shape that are not normal; a proof stays a proof."""
    asked = HEADER.replace("seeds = 10", "seeds = 8").replace("below = 0.5", "below = -99")
    lab, hypothesis = made(asked, "family = 1\nerror = 0.4")
    assert lab.history.entries_of(Declaration)[0].error == 0.2
    lab = with_runs(lab, hypothesis, {"changed": [0.0] * 8})
    others = [
        entry for entry in lab.history.entries if not (isinstance(entry, Run) and entry.label != BASELINE)
    ]
    arms = [entry for entry in lab.history.entries_of(Run) if entry.label != BASELINE]
    r, labs, wrong = np.random.default_rng(3), 250, 0
    for _ in range(labs):
        values = np.round(r.lognormal(0, 1, 8) - r.lognormal(0, 1, 8), 1)
        ran = [replace(run, metrics={"eval/reward": value}) for run, value in zip(arms, values, strict=True)]
        result = judge(replace(lab, history=History((*others, *ran))), hypothesis)
        wrong += result.verdict == "VALIDATED"
    assert 0.05 < wrong / labs <= 0.2 + 3 * math.sqrt(0.16 / labs)


# By the mean, with a bound on the size of differences.

NEAR = HEADER.replace("seeds = 10", 'seeds = 16\nwithin = { "eval/reward" = 1.0 }')


@pytest.fixture
def bounded(tmp_path):
    """A declared lab of one hypothesis whose reward lies between 0 and 1."""
    lab = lab_in(tmp_path, {"h01": NEAR})
    return declared(lab, lab.hypothesis("h01"), Ledger), lab.hypothesis("h01")


def test_a_mean_is_proven_within_what_was_declared(bounded):
    result = verdict(*bounded, changed=[0.8] * 10)
    assert (result.verdict, result.within) == ("VALIDATED", 1.0)
    assert result.low == e_process.lower_bound([0.8] * 10, ERROR, 1.0) > 0
    shown = "\n".join(text for text, _ in verdict_lines(result))
    assert "if no pair differs by more than 1)" in shown
    assert "symmetric" not in shown


def test_gains_that_may_hide_a_rare_loss_prove_no_mean(bounded):
    """Ten pairs gain 0.1: a loss of 0.9 in each tenth run would show as often as not."""
    result = verdict(*bounded, changed=[0.1, 0.11] * 5)
    assert result.criteria[0].state == "open"
    assert result.low < 0
    lab, hypothesis = bounded
    signs = replace(next(iter(lab.history.entries_of(Declaration))), within={})
    by_signs = replace(lab, history=History((signs,)))
    assert verdict(by_signs, hypothesis, changed=[0.1, 0.11] * 5).low > 0


def test_a_pair_beyond_what_was_declared_proves_nothing_and_is_noted(tmp_path):
    header = NEAR.replace("= 1.0 }", "= 0.2 }", 1).replace("0.5", "0.1")
    lab = lab_in(tmp_path, {"h01": header})
    lab, hypothesis = declared(lab, lab.hypothesis("h01"), Ledger), lab.hypothesis("h01")
    result = verdict(lab, hypothesis, changed=[0.2] * 8)
    assert result.verdict == "VALIDATED"
    result = verdict(lab, hypothesis, changed=[0.2] * 5 + [-0.3] + [0.2] * 8)
    assert result.verdict != "VALIDATED"
    assert result.low == -math.inf
    assert any("differs by -0.300, and within is 0.2" in note for note in result.notes)


def test_an_earlier_ledger_is_judged_by_the_signs_that_it_was_declared_with(made):
    result = verdict(*made(), changed=[0.1, 0.11] * 5)
    assert result.within is None
    assert result.low > 0
    assert "if differences are symmetric about the effect" in "\n".join(t for t, _ in verdict_lines(result))


def test_rewards_lie_as_far_from_0_as_their_weights_allow(tmp_path):
    lab = lab_in(tmp_path)
    lab = declared(lab, lab.hypothesis("h01"), Ledger)
    least, most = reward_range(env_from_recipe(resolve_arm(lab, BASELINE, ()).recipe).rewards)
    assert lab.history.entries_of(Declaration, "h01")[0].within == {"eval/reward": most - least}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_evaluations_cannot_distinguish_arms_after_one_pair(bounded, value):
    result = verdict(*bounded, baseline=[value], changed=[value])
    assert (result.verdict, result.pairs) == ("INCONCLUSIVE", 1)
    assert (
        f"these tasks cannot distinguish the arms: every task of every evaluation has reward {value:.3f}"
        in result.because
    )
    shown = "\n".join(text for text, _ in verdict_lines(result))
    assert "detects 0 or more" not in shown


def test_pairs_that_never_differ_cannot_distinguish_arms(bounded):
    lab, hypothesis = bounded
    for seed in range(3):
        assert judge(lab, hypothesis).verdict in ("TESTING", "PENDING")
        for label in (BASELINE, "changed"):
            tasks = {"a": 0.25, "b": 0.75}
            lab = lab.with_entry(run_of(lab, hypothesis, label, seed, 0.5, tasks=tasks))
    result = judge(lab, hypothesis)
    assert (result.verdict, result.pairs) == ("INCONCLUSIVE", 3)
    assert "no pair of 3 differs" in result.because
    assert math.isnan(result.mde)
    shown = "\n".join(text for text, _ in verdict_lines(result))
    assert "no noise estimate" in shown


def test_one_task_with_another_reward_can_distinguish_arms(bounded):
    lab, hypothesis = bounded
    lab = lab.with_entry(run_of(lab, hypothesis, BASELINE, 0, 0.0))
    tasks = {f"task-{i}": float(i == 0) for i in range(12)}
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 0, 1 / 12, tasks=tasks))
    assert judge(lab, hypothesis).verdict == "TESTING"


def test_a_mean_of_nothing_with_rare_large_losses_is_seldom_validated(bounded):
    """In 300 experiments of 16 pairs that gain 0.1 in nine of ten and lose 0.9 in the tenth."""
    lab, hypothesis = bounded
    begun = lab.history.entries_of(Declaration, "h01")[0]
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(300):
        gains = np.where(rng.random(16) < 0.1, -0.9, 0.1)
        wrong += decide(hypothesis.header, {"changed": pairs_that_gain(gains)}, begun, [])[0] == "VALIDATED"
    assert wrong / 300 <= ERROR + 3 * math.sqrt(ERROR / 300)


def pairs_that_gain(gains):
    """Pairs of simulated runs."""
    pairs = []
    for seed, gain in enumerate(gains):
        sides = [
            Run(
                "",
                "",
                "",
                "",
                "h01",
                label,
                seed,
                "finished",
                metrics={"eval/reward": value},
                tasks={"a": value},
            )
            for label, value in (("baseline", 0.9), ("changed", 0.9 + gain))
        ]
        pairs.append(Pair(seed, *sides))
    return pairs


def test_a_measure_of_a_check_is_told_once(tmp_path):
    asked = HEADER + '[check]\nmeasures = [{ metric = "context/cut_share", below = 0.001 }]\nsettles = true\n'
    lab = lab_in(tmp_path, {"h01": asked})
    hypothesis = lab.hypotheses["h01"]
    lab = lab.with_entry(
        CheckResult("h01", baseline_of(lab).digest, "c", {}, {"context/cut_share": 0.75}, 1.0)
    )
    assert judge(lab, hypothesis).notes == ("the check: context/cut_share is 0.75, not below 0.001",)


def test_what_a_check_has_settled_lists_no_open_criterion(tmp_path):
    asked = HEADER + '[check]\nmeasures = [{ metric = "context/cut_share", below = 0.001 }]\nsettles = true\n'
    lab = lab_in(tmp_path, {"h01": asked})
    lab = lab.with_entry(
        CheckResult("h01", baseline_of(lab).digest, "c", {}, {"context/cut_share": 0.0}, 1.0)
    )
    lines = [text for text, _ in verdict_lines(judge(lab, lab.hypotheses["h01"]))]
    assert lines[0].endswith("INVALIDATED by an exact check")
    assert lines[1:] == ["  context/cut_share is 0", "  evidence: high (an exact check)"]
