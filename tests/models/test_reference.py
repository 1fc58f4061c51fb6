"""The reference: what it costs, that it stands still, and what a sync makes of it."""

import pytest
import torch
from samples import sample

from truing.errors import ModelError
from truing.models.digest import quick_sum
from truing.models.forward.collate import collate
from truing.models.lora import REFERENCE, add_lora, trainable_parameters
from truing.models.reference import ema_update, make_reference


def policy_of(tiny, lora, started=False):
    if not lora:
        return tiny.model
    policy = add_lora(tiny.model, rank=2, alpha=4, dropout=0.0, targets="all-linear", seed=0)
    if started:
        perturb(policy)
    return policy


@torch.no_grad()
def perturb(policy, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in trainable_parameters(policy).values():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def logprobs(reference):
    batch = collate([sample([5, 6, 7], [8, 9, 10])])
    return reference.score(batch, batch.kl_mask).logprob


def test_a_fresh_adapter_is_referred_to_its_base_at_no_memory(tiny):
    policy = policy_of(tiny, lora=True)
    before = sum(parameter.numel() for parameter in policy.parameters())
    reference = make_reference(policy)
    expected = logprobs(reference)
    assert sum(parameter.numel() for parameter in policy.parameters()) == before
    assert not reference.synced_weights()
    perturb(policy)
    assert torch.equal(logprobs(reference), expected)


def test_an_adapter_that_has_learned_is_referred_to_itself_as_it_was(tiny):
    policy = policy_of(tiny, lora=True, started=True)
    reference = make_reference(policy)
    expected = logprobs(reference)
    perturb(policy, 1)
    assert torch.equal(logprobs(reference), expected)
    assert all(REFERENCE not in name for name in reference.synced_weights())


def test_equal_weights_are_computed_by_equal_kernels(tiny):
    policy = policy_of(tiny, lora=True, started=True)
    make_reference(policy)
    kinds = {name: type(module) for name, module in policy.named_modules()}
    frozen = {name: kind for name, kind in kinds.items() if name.endswith(f".{REFERENCE}")}
    assert frozen
    assert frozen == {name: kinds[name.replace(f".{REFERENCE}", ".default")] for name in frozen}


@pytest.mark.parametrize("lora", [False, True])
def test_a_copy_differs_in_nothing_and_stands_still_after(tiny, lora):
    policy = policy_of(tiny, lora)
    reference = make_reference(policy, syncable=True)
    old = reference.digest
    perturb(policy)
    reference.check_unchanged()
    parameters = trainable_parameters(policy)
    reference.sync(parameters, keep=0.0)
    assert all(torch.equal(reference.synced_weights()[name], weight) for name, weight in parameters.items())
    assert reference.digest != old
    copied = logprobs(reference)
    perturb(policy, 1)
    assert torch.equal(logprobs(reference), copied)
    reference.check_unchanged()


@pytest.mark.parametrize("lora", [False, True])
def test_an_average_is_the_computed_one(tiny, lora):
    policy = policy_of(tiny, lora)
    reference = make_reference(policy, syncable=True)
    before = {name: weight.clone() for name, weight in reference.synced_weights().items()}
    perturb(policy)
    parameters = trainable_parameters(policy)
    reference.sync(parameters, keep=0.75)
    expected = {name: ema_update(before[name], parameters[name], 0.75) for name in parameters}
    assert quick_sum(reference.synced_weights()) == quick_sum(expected)
    for name, weight in expected.items():
        by_hand = 0.75 * before[name].double() + 0.25 * parameters[name].detach().double()
        assert torch.allclose(weight.double(), by_hand, atol=1e-6), name


@pytest.mark.parametrize("lora", [False, True])
def test_a_reference_that_something_wrote_into_is_found(tiny, lora):
    policy = policy_of(tiny, lora, started=True)
    reference = make_reference(policy)
    reference.check_unchanged()
    weight = next(iter(reference.weights().values()))
    with torch.no_grad():
        weight.view(-1)[3] += 1e-6
    with pytest.raises(ModelError, match="reference changed"):
        reference.check_unchanged()
    with pytest.raises(ModelError, match="reference changed"):
        reference.sync(trainable_parameters(policy), keep=0.0)


def test_a_sync_that_does_not_take_is_found(tiny, monkeypatch):
    reference = make_reference(tiny.model, syncable=True)
    perturb(tiny.model)
    stale = {name: weight.clone() for name, weight in reference.synced_weights().items()}
    answers = iter([reference.synced_weights(), stale])  # what is read back is not what was written
    monkeypatch.setattr(type(reference), "synced_weights", lambda self: next(answers))
    with pytest.raises(ModelError, match="wrong weights"):
        reference.sync(trainable_parameters(tiny.model), keep=0.0)
