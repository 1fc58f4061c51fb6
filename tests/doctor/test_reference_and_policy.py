"""A fault in what scores the policy and the reference is not one of the reference."""

from truing.doctor.diagnosis import ranked
from truing.doctor.evidence import changed_step
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES, ref001
from truing.doctor.rules.smp004 import plain


def causes_of(**nats):
    step = plain(**nats)
    step = changed_step(step, ref_logprob=step.tokens["old_logprob"])
    found = examine(step, [RULES[code] for code in ("REF004", "SMP004", "SMP005")])
    return [(each.code, each.claim.what) for each in ranked(found)]


def test_what_scores_both_is_named_first():
    (first, _), (second, what) = causes_of(trainer=0.9, alone=0.9, sampler=0.9, reference=0.9)
    assert (first, second) == ("SMP005", "REF004")
    assert "the code that scores both" in what


def test_a_reference_that_is_off_alone_is():
    ((code, what),) = causes_of(reference=0.9)
    assert code == "REF004"
    assert "the code that scores both" not in what


def test_a_fixed_reference_has_one_digest_also_over_steps_without_one():
    (claim,) = ref001.judge(ref001.replaced())
    assert (claim.got, claim.expected) == ("c", "b")
    declared = changed_step(ref001.replaced(), setup={"reference_moves": True})
    assert not list(ref001.judge(declared))
