import dataclasses

import pytest
import torch
from architectures import SMALL
from transformers import AutoModelForCausalLM, Lfm2Config, Qwen3NextConfig

from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.errors import DataError
from truing.models.forward.hidden_states import why_no_tree
from truing.ops.sampling import support_mask
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.utils.rng import uniforms

EVERYTHING = SamplingParams(
    temperature=1.3,
    top_k=200,
    top_p=0.95,
    min_p=0.001,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    repetition_penalty=1.1,
    min_new_tokens=3,
    max_new_tokens=12,
    stop_ids=(257, 10),
)


@pytest.fixture
def sampler(tiny):
    return LocalEngine(tiny.model, context_length=tiny.context_length)


def requests(count, *, groups=3):
    prompts = [torch.arange(40, 50 + 3 * g) for g in range(groups)]
    return [Request(prompts[i % groups], ("test", i)) for i in range(count)]


def test_an_answer_does_not_depend_on_its_company(sampler):
    together = sampler.generate(requests(9), EVERYTHING)
    for i, request in enumerate(requests(9)):
        alone = sampler.generate([request], EVERYTHING)[0]
        assert alone.token_ids.tolist() == together[i].token_ids.tolist()
        assert torch.allclose(alone.logprob, together[i].logprob, atol=1e-5)


def test_max_rows_only_splits_the_work(sampler, tiny):
    few = LocalEngine(tiny.model, context_length=tiny.context_length, max_rows=2)
    for a, b in zip(
        sampler.generate(requests(7), EVERYTHING), few.generate(requests(7), EVERYTHING), strict=True
    ):
        assert a.token_ids.tolist() == b.token_ids.tolist()


def test_a_slow_second_implementation_draws_the_same(sampler, tiny):
    """Plain loop, no cache, no padding, temperature 0.7 written out by hand."""
    sampling_params = SamplingParams(temperature=0.7, max_new_tokens=6, stop_ids=(257,))
    for request in requests(3):
        ids = request.prompt_ids.tolist()
        uniform = uniforms(6, *request.rng_key).tolist()
        drawn, logprobs = [], []
        while len(drawn) < 6 and 257 not in drawn:
            with torch.no_grad():
                logits = tiny.model(torch.tensor([ids])).logits[0, -1].double()
            probability = (logits / 0.7).softmax(-1)
            token = int((probability.cumsum(0) <= uniform[len(drawn)]).sum())
            logprobs.append(float(probability[token].log()))
            drawn.append(token)
            ids.append(token)
        got = sampler.generate([request], sampling_params)[0]
        assert got.token_ids.tolist() == drawn
        assert got.logprob.tolist() == pytest.approx(logprobs, abs=1e-5)


def test_stop_is_kept_and_minimum_is_respected(sampler):
    seen = set()
    for completion in sampler.generate(requests(60), EVERYTHING):
        ids = completion.token_ids.tolist()
        stopped = ids[-1] in EVERYTHING.stop_ids
        seen.add(completion.finish_reason)
        assert completion.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert not set(ids[:-1]) & set(EVERYTHING.stop_ids)
        assert len(ids) > EVERYTHING.min_new_tokens if stopped else len(ids) == EVERYTHING.max_new_tokens
        support = support_mask([completion.support.at(t) for t in range(len(ids))], 259)
        assert support[range(len(ids)), ids].all()
        assert not support.all()
    assert seen == {FinishReason.STOP, FinishReason.LENGTH}


def test_greedy_is_the_argmax_with_log_probability_zero(sampler, tiny):
    greedy = SamplingParams(temperature=0, max_new_tokens=1, stop_ids=(257,))
    request = requests(1)[0]
    with torch.no_grad():
        best = int(tiny.model(request.prompt_ids[None]).logits[0, -1].argmax())
    completion = sampler.generate([request], greedy)[0]
    assert completion.token_ids.tolist() == [best]
    assert completion.logprob.tolist() == [0.0]
    assert completion.support is None


def test_a_prompt_beyond_the_context_is_an_error(tiny):
    sampler = LocalEngine(tiny.model, context_length=20)
    short = dataclasses.replace(EVERYTHING, max_new_tokens=12)
    with pytest.raises(DataError, match="longer than the context") as error:
        sampler.generate(requests(1), short)
    assert error.value.got == "10 tokens"


@pytest.mark.parametrize(("config", "carries"), [(Lfm2Config, "conv"), (Qwen3NextConfig, "linear_attention")])
def test_models_that_carry_a_state_draw_beside_others_what_they_draw_alone(config, carries):
    """Some of their layers keep states in place of keys; rows end at different times."""
    torch.manual_seed(0)
    sizes = SMALL | {"vocab_size": 64, "max_position_embeddings": 128, "num_experts": 16}
    made = config(**sizes, layer_types=[carries, "full_attention"])
    model = AutoModelForCausalLM.from_config(made).eval()
    assert why_no_tree(model, 8)
    sampling_params = SamplingParams(max_new_tokens=8, stop_ids=tuple(range(0, 64, 5)))
    sampler = LocalEngine(model, context_length=128)
    asked = [Request(torch.arange(3, 9 + i % 3), ("state", i)) for i in range(6)]
    together = sampler.generate(asked, sampling_params)
    assert len({len(each.token_ids) for each in together}) > 1
    for request, each in zip(asked, together, strict=True):
        (alone,) = sampler.generate([request], sampling_params)
        assert alone.token_ids.tolist() == each.token_ids.tolist()
        assert torch.allclose(alone.logprob, each.logprob, atol=1e-4)
