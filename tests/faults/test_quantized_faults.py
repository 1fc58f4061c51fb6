"""Planted faults and healthy runs of an adapter on a base with ``model.quantization = "nf4"``."""

import dataclasses

import pytest

from truing.faults.detection_matrix import passed, runs
from truing.faults.run_fault import run_fault

pytestmark = pytest.mark.quantization

QUICK = "mask-shifted"

FAULTS = (
    "advantage-sign",
    "gradient-left-over",
    "hidden-temperature",
    "kl-sign",
    "layer-detached",
    "micro-batch-lost",
    "old-logprobs-zero",
    "optimizer-skips",
    "positions-run-on",
    "temperature-not-in-trainer",
)

HEALTHY = ("adapter", "inner-updates", "kl-in-reward", "ppo", "reference-averaged", "tools")


def quantized(name):
    """Return the outcome of a fault or of a healthy run, by its name or that of its first seed."""
    known = runs()
    fault = known[name if name in known else f"{name}-0"]
    changes = {"model.quantization": "nf4", "lora.rank": 4}
    return run_fault(dataclasses.replace(fault, changes={**fault.changes, **changes}), None)


def test_a_fault_is_found_and_its_cause_is_named_first():
    assert passed(quantized(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_more_faults_are_found_and_their_causes_are_named_first(name):
    assert passed(quantized(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_finding_that_is_proven(name):
    assert passed(quantized(name))
