"""Whole runs on a CUDA device that is a mark on tensors of the CPU: operations of both devices are errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from virtual_cuda import virtual_cuda

from dev.faults.detection_matrix import passed, runs
from dev.faults.run_fault import run_fault

GRAPHS = {"model.cuda_graphs": True}
RUNS = {
    "adapter-0": {"model.dtype": "bfloat16", **GRAPHS, "sft.steps": 2, "grpo.steps": 3},
    "old-noisy": {"sft.steps": 2, "grpo.steps": 2},
}
MORE_RUNS = {
    **{"ppo-0": {}, "on-policy-0": {}, "penalties-0": GRAPHS, "weight-noise": {}, "mask-shifted": {}},
    **{"layer-detached": {}, "stale-sampler": {}},
}
"""By fault or healthy run: what else its recipe says."""


def test_devices_do_not_mix():
    with virtual_cuda():
        here, there = torch.arange(3), torch.arange(3, device="cuda")
        assert (here.device.type, there.device.type, here.cuda().is_cuda) == ("cpu", "cuda", True)
        assert (there + 1)[1:].device.type == (there * torch.tensor(2)).device.type == "cuda"
        assert there[torch.tensor([0, 2])].tolist() == [0, 2]
        assert there.cpu().device.type == here.to(there).cpu().device.type == "cpu"
        for mixed in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: here[there],
            lambda: there.masked_fill(here > 1, 0),
        ):
            with pytest.raises(RuntimeError, match="cuda:0"):
                mixed()
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(there)


def judged(name, changes):
    """The outcome of a fault or healthy run on a virtual device whose products round at random."""
    fault = runs()[name]
    with virtual_cuda(rounding=1.0):
        outcome = run_fault(replace(fault, changes={**fault.changes, "model.device": "cuda", **changes}))
    assert outcome.error == ""
    assert not fault.healthy or not outcome.fired
    return outcome


@pytest.mark.integration
@pytest.mark.parametrize("name", RUNS)
def test_a_run_trains_and_the_doctor_judges_it_as_on_a_cpu(name):
    assert passed(judged(name, RUNS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_RUNS)
def test_more_runs_train_and_the_doctor_judges_them_as_on_a_cpu(name):
    assert passed(judged(name, MORE_RUNS[name]))
