"""SMP012 names what is wrong with recorded expert routes."""

import pytest

from truing.doctor.rules.smp012 import FITS, RULE, Measured
from truing.doctor.verdict import Verdict


def claims(**known):
    healthy = {"record": FITS, "replay": FITS, "scores": 2e-7, "rounding": 0.0, "device": "cpu"}
    return list(RULE.judge(Measured(**healthy | known)))


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


def test_on_a_gpu_nothing_is_proven():
    (claim,) = claims(record=FITS | {"here": 0.9, "before": 0.0}, device="cuda, torch.bfloat16")
    assert claim.verdict is Verdict.SUSPECT


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
