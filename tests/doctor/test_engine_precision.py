"""SMP004 beside another trainer's engine: bounds follow its precision, and proof needs to know it."""

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.rules.smp004 import RULE, plain
from truing.doctor.verdict import Verdict


def verdicts(sampler, **facts):
    """The verdicts on a sampler so many nats off, beside an engine whose rounding is 0.01 on average."""
    step = plain(sampler=sampler)
    apart = {"sampler": sampler, "sampler_rounding": 0.01, "trainer": 1e-6}
    measured = step.facts["plain"] | {"sampler_rounding": 0.03, "mean": apart, "median": apart} | facts
    return [claim.verdict for claim in RULE.judge(changed_step(step, facts={"plain": measured}))]


@pytest.mark.parametrize("engine", ["torch.bfloat16", "unknown"])
def test_the_rounding_of_an_engine_is_no_finding(engine):
    assert verdicts(0.03, engine=engine) == []


def test_more_is_proven_if_the_precision_is_known():
    assert verdicts(0.3, engine="torch.bfloat16") == [Verdict.PROVEN]
    assert verdicts(0.3, engine="unknown") == [Verdict.SUSPECT]
    assert verdicts(0.05, engine="torch.bfloat16") == [Verdict.SUSPECT]
