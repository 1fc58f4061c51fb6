"""The sum of the backward passes equals the optimizer's gradient, times one factor."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from truing.distributed.packed_table import unpack
from truing.measurements.backward_sums import GradientSums, compare_at_optimizer, record_backward


@contextmanager
def comparing(optimizer, parameters, sums):
    """Yield the comparison at each step of the optimizer within the block."""
    found = []
    handle = optimizer.register_step_pre_hook(
        lambda *_: found.append(compare_at_optimizer(sums, optimizer, parameters))
    )
    yield found
    handle.remove()


def optimizer_step(meddle=lambda model, optimizer: None, between=lambda model: None):
    """One optimizer step of two backward passes, with what was noted of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3)
    with record_backward(parameters, passes := []) as handed:
        for _ in range(2):
            passes.append(1)
            model(torch.randn(5, 4)).square().sum().backward()
            between(model)
    nn.utils.clip_grad_norm_(parameters.values(), 0.5)
    with comparing(optimizer, parameters, handed) as facts:
        meddle(model, optimizer)
        optimizer.step()
    return facts


def test_a_sound_optimizer_step_is_left_alone_and_its_clip_is_one_factor():
    (fact,) = optimizer_step()
    assert (fact.wrong, fact.foreign, fact.missed) == ([], [], {})
    assert 0 < fact.factor < 1


def test_entries_too_small_for_all_digits_are_left_alone():
    """Of a weight that hardly matters: the clip's product has one digit below the smallest normal number."""
    weights = {"a": nn.Parameter(torch.ones(16)), "b": nn.Parameter(torch.ones(16))}
    optimizer = torch.optim.AdamW(weights.values())
    with record_backward(weights, passes := []) as handed:
        passes.append(1)
        (weights["a"].sum() * 1e3 + weights["b"].sum() * 1.3e-43).backward()
    nn.utils.clip_grad_norm_(weights.values(), 1.0)
    with comparing(optimizer, weights, handed) as facts:
        optimizer.step()
    assert (facts[0].wrong, facts[0].foreign) == ([], [])


def lose(model, optimizer):
    model[1].weight.grad = None


def turn(model, optimizer):
    model[1].weight.grad.neg_()


def double(model, optimizer):
    model[1].weight.grad.mul_(2)


def last_digits(model, optimizer):
    model[1].weight.grad.mul_(1 + 1e-4)


@pytest.mark.parametrize("meddle", [lose, turn, double, last_digits])
def test_one_weight_that_gets_another_gradient_is_named(meddle):
    (fact,) = optimizer_step(meddle)
    assert (fact.count, fact.wrong) == (1, ["1.weight"])


def test_what_is_cleared_between_two_passes_is_seen():
    (fact,) = optimizer_step(between=lambda model: setattr(model[1].weight, "grad", None))
    assert fact.wrong == ["1.weight"]


def test_each_step_of_the_optimiser_is_counted():
    assert len(optimizer_step(lambda model, optimizer: optimizer.step())) == 2


def test_a_weight_without_gradient_from_one_pass_is_reported_with_that_pass():
    parameters = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(3))}
    optimizer = torch.optim.AdamW(parameters.values())
    with record_backward(parameters, passes := []) as handed:
        for used in (parameters.values(), [parameters["a"]]):
            passes.append(1)
            sum(weight.sum() for weight in used).backward()
    with comparing(optimizer, parameters, handed) as facts:
        optimizer.step()
    assert facts[0].missed == {"b": 1}


def test_a_left_over_gradient_is_foreign():
    left = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(3))}
    left["b"].grad = torch.ones(3)
    optimizer = torch.optim.AdamW(left.values())
    with record_backward(left, passes := []) as handed:
        passes.append(1)
        left["a"].sum().backward()
    with comparing(optimizer, left, handed) as facts:
        optimizer.step()
    assert facts[0].foreign == ["b"]


def test_ranks_exchange_sums_in_main_memory():
    """A tensor that is pickled on cuda:1 is unpickled there, and cannot be added to one on cuda:0."""
    sums, sent = GradientSums([]), []
    on_gpu = SimpleNamespace(cpu=lambda: torch.tensor([1.0, 2.0]))
    sums.sums, sums.abs_sums, sums.passes_by_weight = {"w": on_gpu}, {"w": on_gpu}, {"w": [0]}

    def gather(what, value):
        sent.append(value)
        return [value, value]

    sums.exchange(SimpleNamespace(gather=gather))
    assert isinstance(unpack(sent[0][0])["w"], torch.Tensor)
    assert sums.sums["w"].tolist() == sums.abs_sums["w"].tolist() == [2.0, 4.0]
