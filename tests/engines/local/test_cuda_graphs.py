"""Rows that stand still in a table, against rows whose cache grows and shrinks; recorded on CUDA."""

from itertools import pairwise

import pytest
import torch
from architectures import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, DiffLlamaConfig

import truing.engines.local.cuda_graphs
from truing.engines.base import Request
from truing.engines.local.cuda_graphs import GraphRows
from truing.engines.local.engine import LocalEngine
from truing.errors import ModelError
from truing.models.load import load
from truing.types.sampling_params import SamplingParams

CONTRACT = SamplingParams(max_new_tokens=9, stop_ids=(257, 10, 20, 30), presence_penalty=0.5)
PROMPTS = st.lists(st.lists(st.integers(40, 42), min_size=1, max_size=9), min_size=1, max_size=8)


def sampler_with(engine, model, **options):
    """A sampler whose rows are of one kind."""
    made = LocalEngine(model, context_length=512, **options)
    made.rows_for = lambda *_: engine(model) if engine else made._padded
    return made


def assert_same(one, other, atol=1e-5):
    for a, b in zip(one, other, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert torch.allclose(a.logprob, b.logprob, atol=atol)


@pytest.fixture(scope="module")
def model():
    return load("tiny", device="cpu").model


@pytest.fixture(
    params=[3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 64))], scope="module", autouse=True
)
def room(request):
    """Tables that are full after every id, or now and then, or never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truing.engines.local.cuda_graphs, "GROW_TOKENS", request.param)
        yield request.param


@settings(max_examples=35)  # by each of three parameters
@given(PROMPTS)
def test_any_prompts_are_answered_as_by_padded_rows(model, prompts):
    requests = [Request(torch.tensor(ids), ("x", i)) for i, ids in enumerate(prompts)]
    completions = sampler_with(GraphRows, model).generate(requests, CONTRACT)
    assert_same(completions, sampler_with(None, model).generate(requests, CONTRACT))


def test_a_step_is_made_anew_only_where_half_the_rows_have_ended_or_the_room_is_full(
    model, room, monkeypatch
):
    made = []
    begin = truing.engines.local.cuda_graphs.DecodeGraph.__init__

    def counting(self, model, tables, mask_NS):
        made.append(len(mask_NS))
        begin(self, model, tables, mask_NS)

    monkeypatch.setattr(truing.engines.local.cuda_graphs.DecodeGraph, "__init__", counting)
    requests = [Request(torch.arange(40, 52), ("x", i)) for i in range(16)]
    sampling_params = SamplingParams(max_new_tokens=40, stop_ids=tuple(range(0, 256, 16)))
    completions = sampler_with(GraphRows, model).generate(requests, sampling_params)
    assert_same(completions, sampler_with(None, model).generate(requests, sampling_params))
    assert len({len(each.token_ids) for each in completions}) > 4
    if room == 64:
        assert made == sorted(made, reverse=True)
        assert all(2 * after <= before for before, after in pairwise(made))
    else:
        assert len(made) > 5


def test_a_model_that_attends_twice_in_a_layer_is_refused():
    sizes = SMALL | {"vocab_size": 64, "max_position_embeddings": 128}
    model = AutoModelForCausalLM.from_config(DiffLlamaConfig(**sizes)).eval()
    requests = [Request(torch.arange(5, 15), ("x", 0))]
    with pytest.raises(ModelError, match="attends more than once"):
        sampler_with(GraphRows, model).generate(requests, SamplingParams(max_new_tokens=4, stop_ids=(63,)))


def test_graphs_without_cuda_are_an_error(model):
    with pytest.raises(ModelError, match="cuda_graphs needs CUDA"):
        LocalEngine(model, context_length=512, cuda_graphs=True)


@pytest.mark.gpu
def test_on_cuda_the_recorded_step_draws_the_same():
    model = load("tiny", device="cuda").model
    requests = [Request(torch.arange(40, 45 + i % 5), ("x", i)) for i in range(16)]
    completions = LocalEngine(model, context_length=512, cuda_graphs=True).generate(requests, CONTRACT)
    assert_same(completions, LocalEngine(model, context_length=512).generate(requests, CONTRACT), atol=2e-2)
