"""SMP012 names what is wrong with recorded expert routes."""

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rules import opt006, smp004, smp005, smp009
from truing.doctor.rules.smp012 import FITS, RULE
from truing.doctor.verdict import Verdict

BFLOAT16 = "cpu, torch.bfloat16"
HEALTHY = {"record": FITS, "replay": FITS, "scores": 2e-7, "rounding": 0.0, "device": "cpu"}


def claims(**known):
    return list(RULE.judge(changed_step(example_step(), facts={"routes": HEALTHY | known})))


def verdicts(rule, step, routes):
    step = changed_step(step, facts={**step.facts, "routes": routes})
    return [claim.verdict for claim in rule.judge(step)]


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"record": FITS | {"here": 0.9, "before": 0.0}}, "of the token before it"),
        ({"record": FITS | {"here": 0.9, "after": 0.0}}, "of the token after it"),
        ({"record": FITS | {"here": 0.9, "other": 0.1}}, "of other samples"),
        ({"replay": FITS | {"here": 0.3, "before": 0.0}}, "does not take the experts on record: each token"),
        ({"replay": FITS | {"here": 0.01}}, "does not take the experts on record"),
        ({"scores": 0.4}, "scores of replayed experts"),
    ],
)
def test_a_cause_is_proven_and_named(known, words):
    (claim,) = claims(**known)
    assert words in claim.what
    assert claim.verdict is Verdict.PROVEN
    assert claim.got
    assert claim.expected


def test_other_routes_that_fit_nowhere_are_suspected():
    (claim,) = claims(record=FITS | {"here": 0.8})
    assert claim.verdict is Verdict.SUSPECT
    assert claim.what == "the routes on record are not those of their tokens"


@pytest.mark.parametrize(
    "known",
    [
        {"record": FITS | {"here": 0.86, "before": 0.0}},
        {"replay": FITS | {"here": 0.3, "before": 0.0}},
        {"scores": 0.39},
    ],
)
def test_in_bfloat16_on_a_cpu_a_cause_is_proven_too(known):
    (claim,) = claims(**known, device=BFLOAT16)
    assert claim.verdict is Verdict.PROVEN


@pytest.mark.parametrize(
    "known", [{"record": FITS | {"here": 0.86, "before": 0.0, "sets": 31.0}}, {"scores": 0.2}]
)
def test_in_bfloat16_few_sets_and_small_differences_are_no_proof(known):
    (claim,) = claims(**known, device=BFLOAT16)
    assert claim.verdict is Verdict.SUSPECT


@pytest.mark.parametrize("rule", [smp004, smp005, smp009, opt006])
@pytest.mark.parametrize(
    "wrong",
    [{"record": FITS | {"here": 0.9}}, {"replay": FITS | {"here": 0.3}}, {"scores": 0.4}],
)
def test_what_wrong_routes_explain_is_no_proof_of_another_cause(rule, wrong):
    step = rule.example()
    assert verdicts(rule.RULE, step, HEALTHY) == [Verdict.PROVEN]
    assert verdicts(rule.RULE, step, HEALTHY | wrong) == [Verdict.SUSPECT]


@pytest.mark.parametrize("sets", [31.0, 32.0])
def test_in_another_precision_a_record_of_many_sets_is_proof_on_each_device(sets):
    for device in ("cpu, torch.bfloat16", "cuda, torch.bfloat16"):
        (claim,) = claims(record=FITS | {"here": 0.9, "before": 0.0, "sets": sets}, device=device)
        assert claim.verdict is (Verdict.PROVEN if sets >= 32 else Verdict.SUSPECT)


@pytest.mark.parametrize(
    "known",
    [
        {"record": FITS | {"here": 0.4}},
        {"record": FITS | {"here": 0.9, "sets": 6.0, "before": 0.0}},
        {"replay": FITS | {"sets": 0.0}, "record": FITS | {"sets": 0.0}},
        {"scores": 0.05, "device": "cuda, torch.bfloat16"},
    ],
)
def test_near_ties_few_tokens_and_rounding_are_no_finding(known):
    assert claims(**known) == []
