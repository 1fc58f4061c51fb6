"""Planted faults and healthy runs with ``model.dtype = "bfloat16"``: what can be proven is found."""

import dataclasses

import pytest

from truing.faults.detection_matrix import passed, runs
from truing.faults.run_fault import run_fault

pytestmark = pytest.mark.integration

QUICK = ("mask-shifted", "gradient-left-over")
"""Of full training."""

FAULTS = (
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
    "inner-updates",
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
)


def in_bfloat16(name):
    """Return the outcome of a fault or of a healthy run, by its name or that of its first seed."""
    known = runs()
    fault = known[name if name in known else f"{name}-0"]
    return run_fault(dataclasses.replace(fault, changes={**fault.changes, "model.dtype": "bfloat16"}), None)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_and_its_cause_is_named_first(name):
    assert passed(in_bfloat16(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_more_faults_are_found_and_their_causes_are_named_first(name):
    assert passed(in_bfloat16(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_finding_that_is_proven(name):
    assert passed(in_bfloat16(name))
