"""Sampling parameters that vLLM does not have are refused by name; the others are sent, all of them."""

import pytest
import torch

from truing.engines.base import Request
from truing.engines.vllm.params import check_expressible, support_logprobs, to_request, to_vllm
from truing.errors import EngineError
from truing.types.sampling_params import SamplingParams

REFUSED = {
    "repetition_penalty": {"repetition_penalty": 1.1},
    "min_p": {"min_p": 0.1, "top_p": 0.9, "top_k": 10},
    "top_p or min_p without top_k": {"top_p": 0.9},
    "top_k": {"top_k": 21},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_vllm_cannot_express_is_refused_by_name(name):
    with pytest.raises(EngineError) as error:
        check_expressible(SamplingParams(**REFUSED[name]), max_logprobs=20)
    assert error.value.what == f"vLLM cannot sample with the declared sampling.{name}"
    assert error.value.got
    assert 'engine.kind = "local" samples with any parameters' in error.value.remedy


@pytest.mark.parametrize(
    "expressible",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": -0.2, "min_new_tokens": 3},
        {"top_k": 20, "top_p": 0.9},
        {"top_k": 20, "min_p": 0.05},
    ],
)
def test_what_vllm_expresses_is_accepted(expressible):
    check_expressible(SamplingParams(**expressible), max_logprobs=20)


def test_a_server_without_a_limit_of_logprobs_takes_any_top_k():
    check_expressible(SamplingParams(top_k=1000), max_logprobs=-1)


def test_every_parameter_is_sent_and_none_is_left_to_the_server():
    params = SamplingParams(
        temperature=0.7,
        top_k=11,
        top_p=0.8,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        min_new_tokens=2,
        max_new_tokens=9,
        stop_ids=(5, 7),
    )
    sent = to_vllm(params, ("key", 1))
    assert {key: sent[key] for key in ("temperature", "top_k", "top_p", "min_p")} == {
        "temperature": 0.7,
        "top_k": 11,
        "top_p": 0.8,
        "min_p": 0.1,
    }
    assert (sent["presence_penalty"], sent["frequency_penalty"], sent["repetition_penalty"]) == (
        0.2,
        0.3,
        1.0,
    )
    assert (sent["min_tokens"], sent["max_tokens"], sent["stop_token_ids"]) == (2, 9, [5, 7])
    assert sent["ignore_eos"] is True
    assert sent["seed"] != to_vllm(params, ("key", 2))["seed"]


@pytest.mark.parametrize(
    ("params", "dtype", "limit", "count"),
    [
        ({}, torch.bfloat16, 20, 0),
        ({"top_k": 11, "top_p": 0.8}, torch.float32, 20, 11),
        ({"top_k": 11}, torch.bfloat16, -1, 30),  # and those that equal the last one
        ({"top_k": 11}, torch.float16, 20, 20),
    ],
)
def test_the_whole_support_is_asked_for(params, dtype, limit, count):
    assert support_logprobs(SamplingParams(**params), dtype, limit) == count


def test_a_request_asks_for_its_prompt_back(tiny):
    sent = to_request(Request(torch.tensor([3, 4]), ("key",)), SamplingParams(), "m", logprobs=5)
    assert sent["sampling_params"]["logprobs"] == 5
    assert (sent["model"], sent["token_ids"], sent["return_token_ids"]) == ("m", [3, 4], True)


@pytest.mark.parametrize("name", REFUSED)
def test_a_recipe_is_refused_before_anything_is_published(served, opened, name):
    server = served()
    with pytest.raises(EngineError, match=f"sampling.{name}"):
        opened(server.url, sampling={"max_new_tokens": 4, **REFUSED[name]})
    assert server.fake.version == "default"


def test_a_grammar_is_refused(opened):
    with pytest.raises(EngineError, match="grammar"):
        opened("http://127.0.0.1:9", episode={"grammar": "calls"}, env={"name": "workspace"})


def test_declared_parameters_are_those_of_the_answers(served, opened):
    """Penalties count the turn, min_new_tokens bans stops, and the support is that of top-k."""
    sampling = {
        "max_new_tokens": 6,
        "temperature": 0.8,
        "presence_penalty": 0.9,
        "frequency_penalty": 0.4,
        "min_new_tokens": 2,
        "top_k": 12,
        "top_p": 0.95,
    }
    engine, policy = opened(served().url, sampling=sampling)
    assert engine.publish(policy, 0, engine.weight_digest)["turns"]["largest"] < 1e-5


def test_a_greedy_evaluation_leaves_the_proof_to_the_parameters_of_training(served, opened, train):
    """Greedy turns prove nothing of log-probabilities, and the best two ids may be equal."""
    from truing.engines.base import generate

    engine, policy = opened(served().url, sampling={"max_new_tokens": 4, "temperature": 0.8})
    greedy = SamplingParams(temperature=0.0, max_new_tokens=4)
    (turn,) = generate(engine, [Request(torch.arange(9), ("e",))], greedy)
    assert turn.logprob.tolist() == [0.0] * 4
    train(policy)
    assert engine.publish(policy, 1, "one")["turns"]["largest"] > 0
