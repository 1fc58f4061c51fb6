"""Masks of the losses: the KL and the value loss cover every sampled token, and cut rollouts as declared."""

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule_state import examine
from truing.doctor.rules.msk002 import RULE, masked
from truing.types.token import Excluded


@pytest.mark.parametrize("name", ["kl_mask", "value_mask"])
def test_a_sampled_token_that_a_mask_leaves_out_is_reported(name):
    step = example_step()
    last_N = step.position_in_sample == 5
    left_out = changed_step(step, tokens={name: step.tokens["policy_mask"] & ~last_N})
    (claim,) = RULE.judge(left_out)
    assert "not under the KL or the value loss" in claim.what
    whole = changed_step(step, tokens={name: step.tokens["policy_mask"]})
    assert list(RULE.judge(whole)) == []


def test_rows_that_are_not_kept_have_no_mask():
    step = masked(example_step(), example_step().sample_of_token < 4, Excluded.NOT_KEPT)
    without = changed_step(step, kl_mask=step.tokens["policy_mask"])
    assert list(RULE.judge(without)) == []


def test_other_trainers_count_the_tokens_of_their_policy_loss():
    step = changed_step(example_step(), setup={"trainer": "trl"})
    without = changed_step(step, kl_mask=step.tokens["policy_mask"] & (step.position_in_sample != 5))
    assert list(RULE.judge(without)) == []


def test_rejected_answers_are_under_no_loss_whatever_left_out_their_tokens():
    """Rejection sampling records them: some tokens were left out by the mask policy before."""
    step = masked(example_step(), example_step().position_in_sample == 4, Excluded.FORCED_ACTION)
    nothing_N = step.tokens["policy_mask"] & False
    rejected = changed_step(
        masked(step, step.tokens["policy_mask"], Excluded.NOT_KEPT),
        setup={"algo": "rft", "mask": "action"},
        kl_mask=nothing_N,
        value_mask=nothing_N,
    )
    claims = [claim.what for claim in RULE.judge(rejected)]
    assert not [what for what in claims if "KL" in what]


@pytest.mark.parametrize(("declared", "found"), [("mask", 1), ("keep", 0), (None, 0)])
@pytest.mark.parametrize("mask", ["sampled", None])
def test_cut_rollouts_train_as_declared_also_without_a_declared_mask(mask, declared, found):
    step = changed_step(example_step(), samples={1: {"truncated": True, "status": "truncated"}})
    findings = examine(changed_step(step, setup={"mask": mask, "truncated": declared}), [RULE])
    assert len(findings) == found
    assert all("of cut rollouts are under the policy loss" in each.claim.what for each in findings)


def test_without_a_declared_mask_any_choice_of_sampled_tokens_is_right():
    step = masked(example_step(), example_step().position_in_sample == 4, Excluded.FORCED_ACTION)
    assert examine(changed_step(step, setup={"mask": None, "truncated": "mask"}), [RULE]) == []
