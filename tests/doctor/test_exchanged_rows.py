"""Rows whose old log-probabilities are another's are proven, and rows that only say the same are not."""

from contextlib import nullcontext

import pytest
import torch

from dev.faults.fault import Fault, patched
from dev.faults.run_fault import RUN_DIR, run_fault
from truing.doctor.evidence import changed_step
from truing.doctor.postmortem import diagnose_run
from truing.doctor.rules import RULES
from truing.doctor.rules.msk003 import minibatches as two_minibatches
from truing.doctor.rules.rat005 import collapsed, example, minibatches
from truing.doctor.truing_run import recorded_steps
from truing.doctor.verdict import STRONG_VERDICTS


def claims(code, step):
    return list(RULES[code].judge(step))


def with_rolled_logprobs(step, rows):
    """The first rows, all of one length, have each the old numbers of the row before."""
    width = step.lengths[0]
    old_N = step.tokens["old_logprob"].clone()
    old_N[: rows * width] = torch.roll(old_N[: rows * width], width)
    return changed_step(step, old_logprob=old_N)


def healthy():
    return changed_step(example(), old_logprob=example().tokens["sampler_logprob"])


@pytest.mark.parametrize("rows", [2, 3, 16])
def test_rows_that_changed_places_are_counted(rows):
    assert claims("RAT005", healthy()) == []
    (claim,) = claims("RAT005", with_rolled_logprobs(healthy(), rows))
    assert f"of {rows} samples belong to other samples" in claim.what
    assert claim.got == f"those of sample 0 equal the new ones of sample {rows - 1}, at every token"


def test_a_ring_is_proof_where_nobody_recorded_what_was_drawn_with_and_a_chain_is_not():
    unknown = changed_step(with_rolled_logprobs(healthy(), 3), without=["sampler_logprob"])
    assert len(claims("RAT005", unknown)) == 1
    width = unknown.lengths[0]
    new_N = unknown.tokens["new_logprob"].clone()
    new_N[:width] -= 0.5  # the row that has the third one's numbers, and whose own are the second's
    assert claims("RAT005", changed_step(unknown, new_logprob=new_N)) == []


def test_rows_of_a_collapsed_policy_that_changed_places_are_proven_where_they_did_not_move():
    moved = collapsed()
    old_N = moved.tokens["old_logprob"]
    assert claims(
        "RAT005", changed_step(moved, new_logprob=old_N, old_logprob=torch.roll(old_N, moved.lengths[0]))
    )


def test_a_twin_that_moved_is_no_exchange_and_two_that_changed_places_beside_it_are():
    twins = minibatches()  # rows 0–7 say one thing, and 8–15 another; odd ones moved
    width = twins.lengths[0]
    old_N = twins.tokens["old_logprob"].clone()
    one, other = slice(0, width), slice(8 * width, 9 * width)
    old_N[one], old_N[other] = twins.tokens["old_logprob"][other], twins.tokens["old_logprob"][one]
    (claim,) = claims("RAT005", changed_step(twins, old_logprob=old_N))
    assert claim.row == 0


def test_a_gradient_where_none_may_be_is_seen_in_each_optimizer_step():
    step = two_minibatches()
    token_gradient_N = step.tokens["token_gradient"].clone()
    token_gradient_N[step.lengths[0]] = 0.5  # the prompt of the second row, which is in the second minibatch
    (claim,) = claims("MSK003", changed_step(step, token_gradient=token_gradient_N))
    assert (claim.row, claim.start, claim.end) == (1, 0, 1)
    assert claim.what.endswith("have a gradient, in optimizer step 2 of 2")


@pytest.mark.integration
def test_a_run_whose_third_optimizer_step_of_four_is_held_back_is_healthy(tmp_path):
    def far_at_third(real):
        return lambda step, *args: "far" if step.index == 2 else real(step, *args)

    changes = {
        "sft.steps": 1,
        "grpo.steps": 1,
        "grpo.inner_epochs": 2,
        "grpo.minibatches": 2,
        "kl.cap": 100.0,
    }
    run = Fault("capped", (), "", nullcontext, (), {**changes, "kl.coef": 0.01}, healthy=True)
    with patched("truing.learner.step:skip_reason", far_at_third):
        assert run_fault(run, tmp_path).error == ""
    *_, step = recorded_steps(tmp_path / "capped" / RUN_DIR)
    assert set(step.optimizer_step_of_sample.tolist()) == {0, 1, 2}
    results = [
        each
        for each in diagnose_run(tmp_path / "capped" / RUN_DIR).results()
        if each.verdict in STRONG_VERDICTS and each.code != "OPT020"  # the cap is not what skips here
    ]
    assert results == []
