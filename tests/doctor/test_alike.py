"""Bets on rollouts that are the same: fair in expectation, and draws by themselves never win them."""

import math
from dataclasses import replace

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps
from truing.doctor.history import Dropped
from truing.doctor.rules.smp008 import RULE, bets, measure
from truing.doctor.verdict import Verdict


@pytest.mark.parametrize("p", [1e-9, 0.01, 0.5, 1.0])
def test_a_bet_pays_one_on_average(p):
    paid = {same: 10 ** bets([(same, math.log(p))]).log10 for same in (True, False)}
    assert p * paid[True] + (1 - p) * paid[False] == pytest.approx(1)


def test_an_answer_of_a_thousand_nats_is_no_overflow():
    assert bets([(True, -1e4)]).log10 == pytest.approx(1e4 / math.log(10) - math.log10(2))


@pytest.mark.parametrize("sharpness", [0.0, 2.0, 8.0])
def test_draws_by_themselves_are_no_evidence_however_sure_the_policy(sharpness):
    step, draws = example_step(answers=(4,) * 8), torch.Generator().manual_seed(0)
    logits = (sharpness * torch.randn(20, generator=draws)).log_softmax(0)
    for _ in range(50):
        ids = torch.multinomial(logits.exp(), len(step.sample_of_token), replacement=True, generator=draws)
        ids[~step.tokens["policy_mask"]] = 1
        logprob = logits[ids].masked_fill(~step.tokens["policy_mask"], torch.nan)
        drawn = changed_step(step, token_ids=ids, sampler_logprob=logprob)
        assert list(RULE.judge(drawn)) == []


def test_the_same_odds_are_less_late_in_a_run():
    step = RULE.example()
    (early,) = RULE.judge(step)
    (then,) = RULE.judge(replace(step, dropped={step.stage: Dropped(999)}))
    assert early.verdict is Verdict.EVIDENCE
    assert early.log10_odds - then.log10_odds == pytest.approx(math.log10(1000 * 1001 / 2))


def test_rollouts_whose_probability_is_not_known_are_not_bet_on():
    step = RULE.example()
    assert measure(step).group.compared == 6
    unknown = step.tokens["sampler_logprob"].clone()
    unknown[step.sample_of_token == 0] = torch.nan
    assert measure(changed_step(step, sampler_logprob=unknown)).group.compared == 5
    later = with_optimizer_steps(changed_step(step, without=["sampler_logprob"]), dict.fromkeys(range(8), 1))
    assert measure(later).group.compared == 0
    assert measure(replace(later, passes=step.passes)).group.compared == 6
