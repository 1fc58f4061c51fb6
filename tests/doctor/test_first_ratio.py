"""RAT002 in bfloat16: a token that is off by more than measured rounding is suspected."""

from dataclasses import replace

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.rules.rat002 import RULE, beside_bfloat16, later
from truing.doctor.verdict import Verdict


def verdicts(step):
    return [claim.verdict for claim in RULE.judge(step)]


def test_one_changed_id_is_suspected():
    assert verdicts(beside_bfloat16(off=0.18)) == [Verdict.SUSPECT]


@pytest.mark.parametrize(
    ("off", "changes"),
    [(0.04, {}), (0.18, {"turns": 0.04}), (0.18, {"truncated": True})],
    ids=["within rounding", "as in the turns", "truncated"],
)
def test_rounding_is_no_finding(off, changes):
    assert verdicts(beside_bfloat16(off=off, **changes)) == []


@pytest.mark.parametrize("missing", ["publication", "null"])
def test_without_a_measurement_one_token_is_no_finding(missing):
    step = beside_bfloat16(off=0.18)
    facts = {name: fact for name, fact in step.facts.items() if name != missing}
    assert verdicts(replace(step, facts=facts)) == []


def test_a_mixture_may_take_other_experts():
    step = beside_bfloat16(off=0.18)
    receipt = step.facts["publication"] | {"layers": {"experts": {}}}
    assert verdicts(changed_step(step, facts={**step.facts, "publication": receipt})) == []


def test_later_optimizer_steps_alone_are_not_checked():
    assert verdicts(later()) == [Verdict.NOT_CHECKED]
