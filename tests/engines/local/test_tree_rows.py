"""The sampler that shares prefixes and goes on with episodes, against the one that pads and forgets."""

from dataclasses import replace

import pytest
import torch
from architectures import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, DiffLlamaConfig

import truing.engines.local.running_batch
import truing.engines.local.tree_rows
from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.models.load import load
from truing.types.sampling_params import SamplingParams

CONTRACT = SamplingParams(temperature=1.0, max_new_tokens=7, stop_ids=(257, 10, 20, 30))
CONTEXT = 512


def padded(model):
    """A sampler that knows nothing of trees."""
    sampler = LocalEngine(model, context_length=CONTEXT)
    sampler.rows_for = lambda *_: sampler._padded
    return sampler


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert torch.allclose(a.logprob, b.logprob, atol=1e-5)


@pytest.fixture
def fed(monkeypatch):
    """How many ids each forward of the tree was fed."""
    counts = []
    decode = truing.engines.local.tree_rows.decoder_states

    def counting(model, ids, *rest):
        counts.append(len(ids))
        return decode(model, ids, *rest)

    monkeypatch.setattr(truing.engines.local.tree_rows, "decoder_states", counting)
    return counts


@pytest.fixture(autouse=True, scope="module", params=[1, 40, truing.engines.local.tree_rows.MIN_SHARED])
def shared(request):
    """All runs are shared, or some, or rather none of these small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truing.engines.local.tree_rows, "MIN_SHARED", request.param)
        yield request.param


@pytest.fixture(scope="module")
def model():
    return load("tiny", device="cpu").model


PROMPTS = st.lists(st.lists(st.integers(40, 42), min_size=1, max_size=9), min_size=1, max_size=8)


@pytest.mark.integration
@settings(max_examples=35)  # by each of three parameters
@given(PROMPTS)
def test_any_prompts_are_answered_as_without_sharing(model, prompts):
    requests = [Request(torch.tensor(ids), ("x", i)) for i, ids in enumerate(prompts)]
    sampler = LocalEngine(model, context_length=CONTEXT)
    assert_same(sampler.generate(requests, CONTRACT), padded(model).generate(requests, CONTRACT))


def first_turns():
    shared = torch.arange(40, 70)
    prompts = [torch.cat([shared, torch.arange(70, 71 + i // 2)]) for i in range(6)]
    return [Request(prompt, ("e", i), episode=("e", i)) for i, prompt in enumerate(prompts)]


def next_turns(requests, completions, turn):
    """What an environment adds to each: some ids more, not the same number for all."""
    return [
        Request(
            torch.cat([r.prompt_ids, c.token_ids, torch.arange(80, 83 + i)]), ("e", i, turn), episode=("e", i)
        )
        for i, (r, c) in enumerate(zip(requests, completions, strict=True))
    ]


def test_the_next_turn_feeds_only_what_is_new_and_draws_the_same(model, fed):
    sampler, slow = LocalEngine(model, context_length=CONTEXT), padded(model)
    requests = first_turns()
    for turn in range(1, 4):
        fed.clear()
        completions = sampler.generate(requests, CONTRACT)
        assert_same(completions, slow.generate(requests, CONTRACT))
        if turn == 1:  # what prompts share, and then the last id of each
            assert fed[:2] == [32, 6]
        else:  # of each row the last id it drew, and what the environment added
            assert fed[0] == sum(1 + 3 + i for i in range(6))
        requests = next_turns(requests, completions, turn)


def test_some_rows_end_and_strangers_come(model):
    sampler, slow = LocalEngine(model, context_length=CONTEXT, max_rows=4), padded(model)
    requests = first_turns()
    following = next_turns(requests, sampler.generate(requests, CONTRACT), 1)
    mixed = [following[4], Request(requests[0].prompt_ids, ("new", 0)), following[1], following[2]]
    assert_same(sampler.generate(mixed, CONTRACT), slow.generate(mixed, CONTRACT))


def test_rows_come_in_where_others_have_ended(model, fed):
    """Forty rows of two prompts and some strangers, at most eight side by side."""
    sampler, slow = LocalEngine(model, context_length=CONTEXT, max_rows=8), padded(model)
    prompts = [torch.arange(40, 70), torch.arange(40, 55), *(torch.arange(90 + i, 99) for i in range(4))]
    requests = [Request(prompts[i % 6], ("x", i)) for i in range(40)]
    sampling_params = replace(CONTRACT, max_new_tokens=40, stop_ids=tuple(range(0, 257, 9)))
    completions = sampler.generate(requests, sampling_params)
    assert_same(completions, slow.generate(requests, sampling_params))
    lengths = sorted(len(each.token_ids) for each in completions)
    assert lengths[0] < 5
    assert lengths[-1] > 15, "some ended early and others late"
    parts = [lengths[i : i + 8] for i in range(0, 40, 8)]
    assert len(fed) < sum(map(max, parts)) + 20, "fewer steps than by parts, each as long as its longest"


def test_rows_that_were_interrupted_are_forgotten(model, monkeypatch):
    sampler, slow = LocalEngine(model, context_length=CONTEXT), padded(model)
    requests = first_turns()
    draw = truing.engines.local.running_batch.draw_ids

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(truing.engines.local.running_batch, "draw_ids", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sampler.generate(requests, CONTRACT)
    monkeypatch.setattr(truing.engines.local.running_batch, "draw_ids", draw)
    assert_same(sampler.generate(requests[:4], CONTRACT), slow.generate(requests[:4], CONTRACT))


def test_penalties_count_what_each_row_drew_where_rows_come_in(model):
    sampler, slow = LocalEngine(model, context_length=CONTEXT, max_rows=4), padded(model)
    requests = [Request(torch.arange(40, 50 + i % 3), ("x", i)) for i in range(12)]
    sampling_params = replace(
        CONTRACT,
        max_new_tokens=20,
        min_new_tokens=3,
        frequency_penalty=0.5,
        repetition_penalty=1.3,
        stop_ids=tuple(range(0, 257, 9)),
    )
    assert_same(sampler.generate(requests, sampling_params), slow.generate(requests, sampling_params))


def test_a_history_that_was_rewritten_is_computed_anew(model):
    sampler, slow = LocalEngine(model, context_length=CONTEXT), padded(model)
    requests = first_turns()
    following = next_turns(requests, sampler.generate(requests, CONTRACT), 1)
    for request in following:
        request.prompt_ids[33] += 1
    assert_same(sampler.generate(following, CONTRACT), slow.generate(following, CONTRACT))


def test_a_history_that_was_cut_is_computed_anew(model):
    """It ends just where the parked row does, which has nothing left to feed."""
    sampler, slow = LocalEngine(model, context_length=CONTEXT), padded(model)
    requests = first_turns()
    completions = sampler.generate(requests, CONTRACT)
    following = [
        Request(torch.cat([r.prompt_ids, c.token_ids[:-1]]), ("e", i, 1), episode=("e", i))
        for i, (r, c) in enumerate(zip(requests, completions, strict=True))
    ]
    assert_same(sampler.generate(following, CONTRACT), slow.generate(following, CONTRACT))


def test_other_weights_remember_nothing(tiny, fed):
    sampler, slow = LocalEngine(tiny.model, context_length=CONTEXT), padded(tiny.model)
    requests = first_turns()
    following = next_turns(requests, sampler.generate(requests, CONTRACT), 1)
    with torch.no_grad():
        for parameter in tiny.model.parameters():
            parameter.mul_(1.1)
    sampler.publish(tiny.model, 1, "other")
    fed.clear()
    assert_same(sampler.generate(following, CONTRACT), slow.generate(following, CONTRACT))
    assert fed[0] > sum(4 + i for i in range(6))


def test_a_model_that_attends_twice_in_a_layer_draws_the_same():
    torch.manual_seed(0)
    sizes = SMALL | {"vocab_size": 64, "max_position_embeddings": 128}
    model = AutoModelForCausalLM.from_config(DiffLlamaConfig(**sizes)).eval()
    requests = [Request(torch.arange(5, 9 + i), ("x", i)) for i in range(4)]
    sampler = LocalEngine(model, context_length=128)
    sampling_params = SamplingParams(temperature=1.0, max_new_tokens=5)
    assert_same(
        sampler.generate(requests, sampling_params), padded(model).generate(requests, sampling_params)
    )
