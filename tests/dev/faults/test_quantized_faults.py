"""Planted faults and healthy runs of an adapter on a base with ``model.quantization = "nf4"``."""

import dataclasses

import pytest

from dev.faults.detection_matrix import passed, runs
from dev.faults.run_fault import RUN_DIR, run_fault
from truing.cli.export.export import export

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

HEALTHY = ("adapter", "inner-epochs", "kl-in-reward", "ppo", "reference-averaged", "tools")


SHORT = {
    "grpo": ("adapter", {"sft.steps": 2, "grpo.steps": 2}),
    "grpo-bfloat16": ("adapter", {"sft.steps": 2, "grpo.steps": 2, "model.dtype": "bfloat16"}),
    "ppo": ("ppo", {"sft.steps": 2, "ppo.steps": 2}),
}
"""Healthy runs with few steps."""


def quantized(name, keep=None, **changes):
    """Return the outcome of a fault or of a healthy run, by its name or that of its first seed."""
    known = runs()
    fault = known[name if name in known else f"{name}-0"]
    changes = {**fault.changes, "model.quantization": "nf4", "lora.rank": 4, **changes}
    return run_fault(dataclasses.replace(fault, changes=changes), keep)


def test_a_fault_is_found_and_its_cause_is_named_first():
    assert passed(quantized(QUICK))


@pytest.mark.parametrize("name", SHORT)
def test_a_short_healthy_run_has_no_finding_that_is_proven(name):
    run, changes = SHORT[name]
    assert passed(quantized(run, **changes))


def test_a_run_from_an_adapter_of_another_one_has_none_either(tmp_path):
    first = quantized("adapter", tmp_path / "first", stages=["sft"], **{"sft.steps": 4})
    export(tmp_path / "first" / first.fault.name / RUN_DIR, to=tmp_path / "adapter", adapter=True)
    changes = {"stages": ["grpo"], "grpo.steps": 2, "lora.adapter": str(tmp_path / "adapter")}
    assert passed(quantized("adapter", **changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_more_faults_are_found_and_their_causes_are_named_first(name):
    assert passed(quantized(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_finding_that_is_proven(name):
    assert passed(quantized(name))
