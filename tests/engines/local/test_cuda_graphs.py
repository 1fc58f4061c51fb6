"""Rows that stand still in a table, against rows whose cache grows and shrinks; recorded on CUDA."""

import math
from itertools import pairwise

import pytest
import torch
from architectures import SMALL
from fake_cuda_graphs import captured_on_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, DiffLlamaConfig, Gemma3TextConfig, LlamaConfig, Qwen3Config

import truing.engines.local.cuda_graphs
import truing.engines.local.padded_rows
from truing.engines.base import Request
from truing.engines.local.cuda_graphs import GraphRows, captures
from truing.engines.local.engine import LocalEngine
from truing.engines.local.padded_rows import Limits, PaddedRows
from truing.errors import ModelError
from truing.models.load import load
from truing.types.sampling_params import SamplingParams

CONTRACT = SamplingParams(max_new_tokens=9, stop_ids=(257, 10, 20, 30), presence_penalty=0.5)
SIZES = SMALL | {"vocab_size": 64, "max_position_embeddings": 128}
CAPTURED = [LlamaConfig(**SIZES), Qwen3Config(**SIZES), Gemma3TextConfig(**SIZES, sliding_window=64)]
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


@pytest.fixture
def graphs(monkeypatch):
    """Steps on a CPU that are captured and replayed."""
    with captured_on_cpu(monkeypatch) as made:
        yield made


@pytest.mark.integration
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

    def counting(self, model, blocks, *tables):
        made.append(len(blocks.slots))
        begin(self, model, blocks, *tables)

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
    model = AutoModelForCausalLM.from_config(DiffLlamaConfig(**SIZES)).eval()
    requests = [Request(torch.arange(5, 15), ("x", 0))]
    with pytest.raises(ModelError, match="attends more than once"):
        sampler_with(GraphRows, model).generate(requests, SamplingParams(max_new_tokens=4, stop_ids=(63,)))


def test_graphs_without_cuda_are_an_error(model):
    with pytest.raises(ModelError, match="cuda_graphs needs CUDA"):
        LocalEngine(model, context_length=512, cuda_graphs=True)


@pytest.mark.parametrize("config", CAPTURED, ids=lambda config: config.model_type)
def test_a_replayed_graph_draws_the_same(graphs, room, config):
    """Rows end at different times, tables grow, and graphs are captured again."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    requests = [Request(torch.arange(5, 10 + i % 4), ("x", i)) for i in range(12)]
    sampling_params = SamplingParams(max_new_tokens=12, stop_ids=tuple(range(0, 64, 8)))
    completions = sampler_with(GraphRows, model).generate(requests, sampling_params)
    assert 1 < graphs.made <= graphs.replays
    assert_same(completions, sampler_with(None, model).generate(requests, sampling_params))


def test_under_autocast_a_replayed_graph_draws_from_the_same_distribution(graphs, model, monkeypatch):
    """On CUDA a model in float32 computes under autocast, in which keys and values differ in dtype."""
    for module in (truing.engines.local.cuda_graphs, truing.engines.local.padded_rows):
        monkeypatch.setattr(module, "autocast", lambda model: torch.autocast("cpu", torch.bfloat16))
    requests = [Request(torch.arange(40, 45 + i % 5), ("x", i)) for i in range(4)]
    completions = sampler_with(GraphRows, model).generate(requests, CONTRACT)
    assert graphs.replays
    expected = sampler_with(None, model).generate(requests, CONTRACT)
    for one, other in zip(completions, expected, strict=True):
        assert torch.allclose(one.logprob[:2], other.logprob[:2], atol=2e-2)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda step: torch.full((1,), step.filled), "assert"),  # a graph repeats the number of its capture
        (lambda step: torch.tensor([step.filled]), "lift_fresh within a capture"),
    ],
)
def test_a_step_that_cannot_be_captured_is_noticed(graphs, model, monkeypatch, column, message):
    def attend(self, *args):
        self.column = column(self)
        return correct(self, *args)

    correct = truing.engines.local.cuda_graphs.DecodeGraph._attend
    monkeypatch.setattr(truing.engines.local.cuda_graphs.DecodeGraph, "_attend", attend)
    monkeypatch.setattr(truing.engines.local.cuda_graphs, "GROW_TOKENS", 64)
    requests = [Request(torch.arange(40, 50), ("x", 0))]
    expected = sampler_with(None, model).generate(requests, CONTRACT)
    with pytest.raises(AssertionError, match=message):
        assert_same(sampler_with(GraphRows, model).generate(requests, CONTRACT), expected)


def test_on_cuda_rows_are_padded_or_captured_and_not_a_tree(model, monkeypatch):
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    for cuda_graphs, rows in ((False, PaddedRows), (True, GraphRows)):
        engine = LocalEngine(model, context_length=512, cuda_graphs=cuda_graphs)
        assert type(engine.rows_for(64)) is rows
    assert captures(model)


def test_on_cuda_the_cache_has_a_share_of_the_free_memory(model, monkeypatch):
    """Two layers with two key heads of 20 numbers: 640 bytes a token in float32."""
    engine = LocalEngine(model, context_length=512)
    assert engine.limits(9) == (128, math.inf, 9)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr("truing.engines.local.engine.bytes_free", lambda device: 640 * 1000)
    assert engine.limits(9) == (128, 400, 9)


def test_no_more_rows_are_sampled_at_once_than_fit_into_the_cache(model, room):
    """Padded rows have a copy of the prompt each; rows of a graph share it, in up to three blocks."""
    prompts = [[40, 41, 42, 43], [50, 51, 52, 53]]
    requests = [Request(torch.tensor(prompts[i % 2]), ("x", i)) for i in range(6)]
    assert PaddedRows(model).parts(requests, Limits(128, 3 * (4 + 6), 6)) == [[0, 2, 4], [1, 3, 5]]
    assert PaddedRows(model).parts(requests, Limits(2, math.inf, 6)) == [[0, 2], [4, 1], [3, 5]]
    assert PaddedRows(model).parts(requests, Limits(128, 1, 6)) == [[0], [2], [4], [1], [3], [5]]
    own = 2 * (6 + room)
    assert GraphRows(model).parts(requests, Limits(128, 3 * 4 + 3 * own, 6)) == [[0, 2, 4], [1, 3, 5]]
    assert GraphRows(model).parts(requests, Limits(128, 3 * 8 + 4 * own, 6)) == [[0, 2, 4, 1], [3, 5]]


@pytest.mark.gpu
def test_on_cuda_the_recorded_step_draws_the_same(monkeypatch):
    """In float32 throughout: in bfloat16 rounding carries some draws over the border of two ids."""
    monkeypatch.setattr("truing.models.forward.autocast.computing_dtype", lambda model: None)
    model = load("tiny", device="cuda").model
    requests = [Request(torch.arange(40, 45 + i % 5), ("x", i)) for i in range(16)]
    completions = LocalEngine(model, context_length=512, cuda_graphs=True).generate(requests, CONTRACT)
    assert_same(completions, LocalEngine(model, context_length=512).generate(requests, CONTRACT), atol=1e-4)
