"""The audit's branches for a model on CUDA, with torch's functions replaced."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from truing.integrations.trl import forward_check
from truing.integrations.trl.rng_state import rng_state_of

CUDA = torch.device("cuda", 1)


def test_the_random_state_is_that_of_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.tensor([device.index]))
    assert rng_state_of(CUDA).tolist() == [1]
    assert torch.equal(rng_state_of(torch.device("cpu")), torch.get_rng_state())


@pytest.mark.parametrize(("device", "forked"), [(CUDA, [CUDA]), (torch.device("cpu"), [])])
def test_dropout_of_an_audit_leaves_the_random_numbers_of_the_device(monkeypatch, device, forked):
    forks = []

    def fork(devices, device_type):
        forks.append((devices, device_type))
        return nullcontext()

    monkeypatch.setattr(torch.random, "fork_rng", fork)
    modes = []
    model = SimpleNamespace(
        parameters=lambda: iter([SimpleNamespace(device=device)]),
        train=lambda: modes.append("train"),
        eval=lambda: modes.append("eval"),
    )
    with forward_check._training(model):
        assert modes == ["train"]
    assert modes == ["train", "eval"]
    assert forks == [(forked, device.type)]
