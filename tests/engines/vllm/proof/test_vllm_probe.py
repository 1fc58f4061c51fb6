"""The worker's probe, read and compared: fused layers, biases, and what is no answer."""

import copy

import pytest
import torch
from transformers import LlamaForCausalLM

from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.weights import HeldModel
from dev.faults.fake_vllm.worker import FakeWorker
from truing.engines.vllm.proof.compare_layers import Comparison
from truing.engines.vllm.proof.expected_layers import FORMATS, as_dtype, expected_responses
from truing.engines.vllm.proof.layer_answers import read_probe
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector
from truing.errors import EngineError, PublicationError
from truing.models.lora import add_lora
from truing.models.tiny import tiny_model

SEED = 5


@pytest.fixture(params=[1, 2, 4])
def biased(tmp_path, request):
    """A model with biases in its attention, and the workers of its server: it has two heads of keys."""
    config = tiny_model().config
    config.attention_bias = True
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    model.save_pretrained(tmp_path)
    held, options = HeldModel(tmp_path, torch.float32, 8), Options(tmp_path, "tiny", workers=request.param)
    return model, [FakeWorker(held, 1, options, rank) for rank in range(request.param)]


def changed_of(model):
    return lambda words: expected_responses(model, FORMATS[words], SEED)


def compared(model, workers, adapter=False, **changes):
    probes = [worker.truing_probe(seed=SEED, adapter=adapter, base=True) | changes for worker in workers]
    return compare(probes, model)


def compare(probes, model):
    expected = expected_responses(model, as_dtype(torch.float32), SEED)
    answer = read_probe(probes, expected)
    comparison = Comparison(answer, expected, torch.float32, [], changed_of(model))
    return comparison.base() | comparison.adapter()


def load_adapter(held, policy, folder):
    """Give a policy's adapter a random B, and load it into the served model."""
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    policy.save_pretrained(folder, selected_adapters=["default"])
    held.load_adapter(folder)


def test_a_probe_vector_is_of_ones_and_equal_everywhere():
    r = probe_vector(1000, SEED)
    assert set(r.tolist()) == {-1.0, 1.0}
    assert abs(float(r.mean())) < 0.15
    assert torch.equal(r[:500], probe_vector(500, SEED))
    assert not torch.equal(r, probe_vector(1000, SEED + 1))


def test_every_layer_and_every_bias_is_compared(biased):
    receipt = compared(*biased)
    assert receipt["linear"]["layers"] == 16
    assert receipt["vectors"] == {"compared": 5 + 2 * 4, "unseen": []}


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_one_element_of_a_bias_shows_although_biases_are_fused(biased, name):
    model, workers = biased
    held = workers[0].held
    with torch.no_grad():
        getattr(held.base.model.layers[1].self_attn, name).bias[3] += 1e-3
    with pytest.raises(PublicationError, match="1 of 13") as error:
        compared(model, workers)
    assert f"model.layers.1.self_attn.{name}.bias" in str(error.value.got)


@pytest.mark.parametrize("name", ["self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"])
def test_one_element_of_a_fused_layer_shows_and_is_named(biased, name):
    model, workers = biased
    held = workers[0].held
    with torch.no_grad():
        held.base.get_submodule(f"model.layers.0.{name}").weight[2, 7] += 1e-3
    with pytest.raises(PublicationError, match="in 1 of 16 layers") as error:
        compared(model, workers)
    assert f"model.layers.0.{name}" in str(error.value.got)


def test_one_element_of_either_matrix_of_an_adapter_shows(biased, tmp_path):
    model, workers = biased
    held = workers[0].held
    policy = add_lora(model, rank=4, alpha=8, dropout=0.0, targets="all-linear", seed=0)
    load_adapter(held, policy, tmp_path / "adapter")
    assert compared(policy, workers, adapter=True)["delta"]["layers"] == 14
    sound = copy.deepcopy(held.slot)
    for part in range(2):
        held.slot = copy.deepcopy(sound)
        held.slot["model.layers.1.mlp.gate_proj"][part][1, 2] += 1e-2
        with pytest.raises(PublicationError, match="in 1 of 14 layers: they are neither earlier"):
            compared(policy, workers, adapter=True)


def test_an_adapter_may_leave_out_the_second_of_three_fused_layers(biased, tmp_path):
    model, workers = biased
    held = workers[0].held
    policy = add_lora(model, rank=4, alpha=8, dropout=0.0, targets=["q_proj", "v_proj"], seed=0)
    load_adapter(held, policy, tmp_path / "adapter")
    assert compared(policy, workers, adapter=True)["delta"]["layers"] == 4
    name = "model.layers.1.self_attn.k_proj"
    outputs, inputs = held.layers[name].weight.shape
    held.slot[name] = (torch.ones(1, inputs), torch.ones(outputs, 1))
    with pytest.raises(PublicationError, match=f"adapts 1 layers that the trainer does not: {name}"):
        compared(policy, workers, adapter=True)


@pytest.mark.parametrize(
    "change",
    [
        {"linear": None},
        {"linear": {"x": ["y"]}},
        {"linear": {"x": {"parts": ["y"], "values": "no base64!", "division": "whole"}}},
        {"tables": {"model.embed_tokens": "abc"}},
        {"vectors": 3},
        {"delta": {"x": 1}},
    ],
)
def test_what_is_no_answer_of_the_worker_is_an_error(biased, change):
    with pytest.raises(EngineError, match="cannot be read") as error:
        compared(*biased, **change)
    assert error.value.remedy


def test_a_layer_that_the_engine_lacks_is_named(biased):
    model, workers = biased
    probes = [worker.truing_probe(seed=SEED, adapter=False, base=True) for worker in workers]
    for probe in probes:
        del probe["linear"]["model.layers.1.self_attn.qkv_proj"]
        del probe["vectors"]["model.layers.1.self_attn.qkv_proj.bias"]
    with pytest.raises(PublicationError, match="no weights for 3 of 16 layers"):
        compare(probes, model)
