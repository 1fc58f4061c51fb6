"""Planted faults and healthy runs with ``model.dtype = "bfloat16"``: what can be proven is found."""

import dataclasses

import pytest
from command import truing

from dev.faults.detection_matrix import page, passed, provable, runs
from dev.faults.planted import FAULTS as PLANTED
from dev.faults.run_fault import run_fault

NOTHING_TO_PROVE = {
    "hidden-states-off": "below bfloat16's rounding",
    "tree-leak": "below bfloat16's rounding",
    "vllm-base-drifts": "below bfloat16's rounding",
    "half-synced": "nothing to plant",
    "sampler-one-behind": "nothing to plant",
    "stale-sampler": "nothing to plant",
    "sampler-in-bfloat16": "no fault",
    "vllm-adapter-in-bfloat16": "no fault",
    "vllm-norms-rounded": "no fault",
    "vllm-rounded-to-bfloat16": "no fault",
    "base-in-float16": "float16 has more digits",
    "reference-rounded-on-resume": "there the reference is in bfloat16",
}
"""Faults that bfloat16 leaves nothing to prove of, and the beginning of the reason."""

QUICK = ("mask-shifted", "gradient-left-over")
"""Of full training."""

ONE_STEP = {
    "dropout-on": {"stages": ["sft"], "sft.steps": 1},
    "entropy-sign": {"grpo.steps": 1},
    "vllm-own-temperature": {"sft.steps": 1, "grpo.steps": 1},
    "vllm-one-behind": {"sft.steps": 1, "grpo.steps": 2},
    "routes-shifted": {"sft.steps": 1, "grpo.steps": 1},
    "routes-of-another-sample": {"sft.steps": 1, "grpo.steps": 1},
    "routes-scored-after-selection": {"sft.steps": 1, "grpo.steps": 1},
    "vllm-answers-exchanged-in-groups": {"sft.steps": 1, "grpo.steps": 1},
    "vllm-ids-changed": {"sft.steps": 1, "grpo.steps": 1},
    "vllm-own-presence-penalty": {},
    "vllm-prompts-cut": {},
    "vllm-quantized-to-int8": {},
    "vllm-routes-shifted": {},
}
"""Faults whose first steps decide: dropout is no rounding, and rounding is far below fixed tolerances."""

FAULTS = (
    "dropout-on",
    "entropy-sign",
    "hidden-repetition-penalty",
    "vllm-hidden-temperature-lora",
    "reference-is-policy",
    "temperature-not-in-trainer",
    "layer-detached",
    "layer-cleared",
    "optimizer-skips",
    "weight-noise",
    "kl-sign",
    "old-logprobs-zero",
    "hidden-temperature",
    "hidden-top-p",
    "micro-batch-lost",
    "value-loss-doubled",
    "positions-run-on",
    "advantage-sign",
    "groups-mixed",
    "rows-permuted",
    "stop-masked",
)

HEALTHY = (
    "adapter",
    "adapter-after-sft",
    "corrected",
    "entropy-and-kl",
    "gspo",
    "inner-epochs",
    "kl-in-reward",
    "mixture-local",
    "nucleus",
    "on-policy",
    "penalties",
    "ppo",
    "reference-averaged",
    "reference-synced",
    "rejection-sampling",
    "tools",
    "mixture",
    "vllm-full",
    "vllm-lora",
    "vllm-sampling-parameters",
    "vllm-tools",
)


def in_bfloat16(name, **changes):
    """Return the outcome of a fault or of a healthy run, by its name or that of its first seed."""
    known = runs()
    fault = known[name if name in known else f"{name}-0"]
    changes = {**fault.changes, "model.dtype": "bfloat16", **changes}
    return run_fault(dataclasses.replace(fault, changes=changes), None)


def test_what_bfloat16_leaves_nothing_to_prove_of_is_listed_with_the_reason():
    reasons = {name: fault.not_in_bfloat16 for name, fault in PLANTED.items() if fault.not_in_bfloat16}
    assert reasons.keys() == NOTHING_TO_PROVE.keys()
    for name, reason in reasons.items():
        assert reason.startswith(NOTHING_TO_PROVE[name])


def test_only_a_page_in_bfloat16_leaves_them_out_and_shows_the_reasons():
    assert provable(list(PLANTED), None) == provable(list(PLANTED), "float32") == (list(PLANTED), [])
    run, left_out = provable(list(PLANTED), "bfloat16")
    assert {fault.name for fault in left_out} == NOTHING_TO_PROVE.keys()
    assert {*run, *NOTHING_TO_PROVE} == PLANTED.keys()
    text = page([], "truing faults --dtype bfloat16", "bfloat16", left_out)
    assert text.startswith("# The detection matrix in bfloat16\n")
    assert f"{len(NOTHING_TO_PROVE)} more faults leave nothing to prove in bfloat16." in text
    for fault in left_out:
        assert f"| {fault.name}: {fault.what} | {fault.not_in_bfloat16} |" in text


def test_the_command_says_why_a_fault_is_not_run():
    outcome = truing("faults", "--dtype", "bfloat16", "tree-leak")
    assert outcome.code == 0
    assert f"tree-leak: {PLANTED['tree-leak'].not_in_bfloat16}" in outcome.out


@pytest.mark.integration
@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_and_its_cause_is_named_first(name):
    assert passed(in_bfloat16(name))


@pytest.mark.integration
@pytest.mark.parametrize("name", ONE_STEP)
def test_one_step_shows_a_fault_that_rounding_nearly_hides(name):
    assert passed(in_bfloat16(name, **ONE_STEP[name]))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_more_faults_are_found_and_their_causes_are_named_first(name):
    assert passed(in_bfloat16(name))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_finding_that_is_proven(name):
    assert passed(in_bfloat16(name))
