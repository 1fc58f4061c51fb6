"""The guilty part of a trainer, named by swapping each: in real runs with one fault, and by hand."""

import math

import pytest
import torch
from pick import first

import truing
from dev.faults.fault import patched
from dev.faults.planted import FAULTS
from dev.faults.run_fault import table_of
from truing.api import bisect
from truing.doctor.bisect import bisect as swap_each
from truing.doctor.bisect import first_differing
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rules.msk007 import demonstrated_step

pytestmark = pytest.mark.integration


def trained(name, tmp_path):
    fault = FAULTS[name]
    rewards = None if fault.reward is None else [fault.reward]
    table = table_of(fault)
    table[table["stages"][-1]]["steps"] = 1  # which is bisected
    with fault.plant():
        run = truing.train(table, rewards=rewards, out=tmp_path / "run", on_event=lambda *_: None).run
    return bisect(run, rewards=rewards)


GUILTY = {
    "half-synced": "sampler",
    "old-shifted": "old",
    "rewards-on-other-rows": "reward",
    "stop-masked": "mask",
    "groups-mixed": "advantage",
    "temperature-not-in-trainer": "forward",
    "micro-batch-means": "loss",
    "optimizer-skips": "optimizer",
    "reference-of-other-prompt": "reference",
    "hidden-top-p": "draws",
}


@pytest.mark.parametrize("name", first(5, GUILTY))
def test_the_guilty_part_of_a_run_is_named(name, tmp_path):
    seen, trials = trained(name, tmp_path)
    assert first_differing(trials).part == GUILTY[name]
    assert seen.step == 0
    if seen.stage == "grpo":
        same = {each.part for each in trials if each.state == "same"}
        assert {"template", "reward", "ids", "optimizer"} - {GUILTY[name]} <= same


def test_another_template_is_seen_token_by_token(mini, tmp_path):
    def otherwise(real):
        return lambda *args, **kwargs: real(*args, **kwargs).replace("system\n", "System\n")

    with patched("truing.chat.chat:apply_template", otherwise):
        run = truing.train(mini(), out=tmp_path / "run", on_event=lambda *_: None).run
    part = first_differing(bisect(run, stage="grpo", step=0)[1])
    assert part.part == "template"
    assert "token 1" in part.detail
    assert "should read 'system" in part.detail


def test_a_healthy_run_has_no_guilty_part(mini, tmp_path):
    run = truing.train(mini(kl={"coef": 0.05}), out=tmp_path / "run", on_event=lambda *_: None).run
    for stage in ("sft", "grpo"):
        trials = bisect(run, stage=stage, step=0)[1]
        assert first_differing(trials) is None
        assert {"template", "mask", "forward", "loss", "optimizer"} <= {
            each.part for each in trials if each.state == "same"
        }


def test_a_swap_says_how_far_the_gradient_moves_and_which_rules_it_clears():
    healthy = example_step()
    assert first_differing(swap_each(healthy, {})) is None
    mask = healthy.tokens["policy_mask"].clone()
    mask[healthy.position_in_sample == 4] = False
    trials = {each.part: each for each in swap_each(changed_step(healthy, policy_mask=mask), {})}
    assert trials["mask"].state == "differs"
    assert trials["mask"].gradient > 0.1
    assert "MSK002" in trials["mask"].clears


def test_a_loss_without_a_gradient_is_reported_as_such():
    healthy = example_step()
    nothing = changed_step(healthy, token_gradient=torch.zeros(len(healthy.sample_of_token)))
    trials = {each.part: each for each in swap_each(nothing, {})}
    assert trials["loss"].state == "differs"
    assert trials["loss"].gradient == math.inf


def test_what_a_stage_does_not_have_is_not_swapped():
    trials = {each.part: each for each in swap_each(demonstrated_step(), {})}
    assert trials["advantage"].state == trials["template"].state == "not swapped"
    assert trials["mask"].state == trials["loss"].state == "same"
