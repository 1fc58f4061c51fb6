"""Planted faults between trainer and server are refused, and their causes named: without a whole run."""

import pytest
import torch

from dev.faults.fake_vllm.threads import fake_vllm
from dev.faults.fake_vllm.weights import HeldModel
from dev.faults.planted import FAULTS
from dev.faults.run_fault import table_of
from truing.engines.base import Request, generate
from truing.errors import TruingError
from truing.types.sampling_params import SamplingParams

pytestmark = pytest.mark.integration

REFUSED = {
    name: fault
    for name, fault in FAULTS.items()
    if fault.refusal
    and fault.ranks == 1
    and table_of(fault).get("engine", {}).get("kind") == "vllm"
    and name != "vllm-stop-left-out"  # no turn of an untrained policy stops
}


def published_and_sampled(open_engine, fault, train):
    """Publish some versions, and sample with each, as a run does."""
    table = table_of(fault)
    keys = ("engine", "correction", "model", "sampling", "lora")
    engine, policy = open_engine(**{key: table[key] for key in keys if key in table})
    params = SamplingParams(**table["sampling"])
    for version in range(3, 7):
        train(policy, version)
        engine.publish(policy, version, f"digest-{version}")
        generate(engine, [Request(torch.arange(30 + i % 2), (version, i)) for i in range(3)], params)
        engine.release_memory()


@pytest.mark.parametrize("name", REFUSED)
def test_a_fault_is_refused_and_its_cause_is_named(name, opened, train):
    fault = REFUSED[name]
    with fault.plant(), fake_vllm(), pytest.raises(TruingError) as error:
        published_and_sampled(opened, fault, train)
    assert fault.refusal in error.value.what
    assert error.value.got
    assert error.value.expected
    assert error.value.remedy


@pytest.mark.parametrize("name", ["vllm-adapter-not-active", "vllm-prefix-cache-stale"])
def test_the_same_is_not_refused_without_the_fault(name, opened, train):
    with fake_vllm():
        published_and_sampled(opened, REFUSED[name], train)


def test_another_forward_with_equal_weights_is_distinguished_from_other_weights(opened, train, monkeypatch):
    real = HeldModel.forward
    monkeypatch.setattr(HeldModel, "forward", lambda self, ids, *rest: real(self, ids, *rest) * 1.01)
    with fake_vllm(), pytest.raises(TruingError, match="its layers have these weights"):
        opened(lora={"rank": 4})
