"""Layers that are computed twice: gradients stay, also where layers hold others and where they are shared."""

import pytest
import torch
from architectures import tiny_config, tiny_model
from samples import sample
from transformers.modeling_layers import GradientCheckpointingLayer

from truing.models.forward.collate import collate
from truing.models.forward.recompute import count_saved_bytes, layers_of
from truing.models.forward.score import score


def gradients(model, *, recompute):
    rows = collate([sample([3, 4, 5], [6, 7, 8, 9]), sample([3, 4], [9, 2], name="b")])
    model.zero_grad()
    with count_saved_bytes(model) as kept:
        scored = score(model, rows, rows.policy_mask, recompute=recompute).logprob[rows.policy_mask]
    (scored * torch.linspace(-1, 1, len(scored))).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), kept()


@pytest.mark.parametrize("model_type", ["llama", "zamba", "zamba2", "jamba", "gemma2", "gemma3n_text"])
def test_gradients_are_the_same_and_less_is_kept(model_type):
    model = tiny_model(tiny_config(model_type))
    plain, kept = gradients(model, recompute=False)
    again, kept_less = gradients(model, recompute=True)
    assert (again - plain).norm() <= 1e-5 * plain.norm()
    assert kept_less < kept


def test_a_layer_within_another_is_part_of_it():
    model = tiny_model(tiny_config("zamba2"))
    layers = layers_of(model)
    assert layers
    for layer in layers:
        inner = [each for each in layer.modules() if each is not layer]
        assert not set(inner) & set(layers)
    nested = [each for each in model.modules() if isinstance(each, GradientCheckpointingLayer)]
    assert len(nested) > len(layers)


def test_a_layer_that_stands_alone_and_within_another_is_part_of_the_other():
    class Layer(GradientCheckpointingLayer):
        pass

    model, inner, outer = tiny_model(tiny_config("llama")), Layer(), Layer()
    outer.add_module("inner", inner)
    model.model.layers = torch.nn.ModuleList([inner, outer])
    assert layers_of(model) == [outer]
