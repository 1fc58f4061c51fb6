"""Rules that claim several faults: the further ones, each with the claim that names it."""

from importlib import import_module

import pytest

from truing.doctor.rules import (
    msk003,
    opt003,
    opt004,
    opt008,
    opt017,
    opt018,
    opt019,
    opt020,
    ref001,
    rwd008,
    rwd011,
    rwd014,
    smp006,
    smp013,
    tol002,
    tpl003,
)

CLAIMS = {
    msk003.entropy_reversed: "the loss moves the entropy of 32 tokens otherwise than declared",
    opt003.counted_on: "the optimizer counts more steps of norm.weight than the stage has made, so"
    " that its moments are too small at the start",
    opt004.of_the_critic: "the recorded learning rate is not the optimizer's",
    opt008.of_the_critic: "the gradient of the critic, in optimizer step 2 is not clipped as declared",
    opt017.begun_again: "the weight of the entropy bonus does not follow its target",
    opt017.late: "the weight of the demonstrations beside rollouts is not the declared one",
    opt020.group_left_out: "1 of 2 groups have graded rollouts that are not trained, and no gate leaves them"
    " out",
    opt020.too_few: "the step is trained, against gates.min_trained_tokens",
    smp013.drawn_otherwise: "8 rollouts have other sampling parameters than declared",
    tol002.cut_counts_as_done: "2 rollouts count as ended by the environment, which replied to the last turn",
    tpl003.later_turn_cut: "before 4 of 8 later turns stands something else than the template's text",
    rwd014.of_other_tasks: "6 of 8 rollouts were graded with another task or text than their own",
    tol002.shared_state: "3 episodes answer the same turns of a task otherwise than another: they share a"
    " state, or the environment draws",
    opt020.skipped_below: "optimizer step 1 of 1 is skipped",
    rwd008.one_left_out: "1 of 8 samples with the declared minimum reward are not trained",
    opt018.scaled: "14 weights that train are not as declared",
    opt019.repeated: "1 optimizer step drops the same entries as an earlier one",
    ref001.not_restored: "the reference is another one than the last sync left",
    ref001.between_syncs: "the reference has changed since an earlier step, without a declared sync",
    smp006.by_size: "samples change each other: log-probabilities depend on the size of micro-batches, and so"
    " does the gradient",
    smp013.always_forced: "3 of 8 turns begin with the forced prefix, or without it, otherwise than the"
    " declared rate gives",
    rwd011.loss_of_one_micro_batch: "loss/policy is not that of the step's samples",
}


@pytest.mark.parametrize("example", CLAIMS, ids=lambda each: f"{each.__module__[-6:]}-{each.__name__}")
def test_a_further_example_is_claimed(example):
    (claim,) = import_module(example.__module__).RULE.judge(example())
    assert claim.what == CLAIMS[example]
