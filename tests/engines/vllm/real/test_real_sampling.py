"""Turns that a real vLLM server samples are of the declared distribution, and of no other."""

from dataclasses import replace

import pytest
import torch
from scored import compare_scores

from truing.doctor.oracle.draw_race import behind, race_noise
from truing.engines.base import Request, generate
from truing.engines.vllm.proof.prompts import canary_prompts
from truing.engines.vllm.proof.scores import canary_sample
from truing.errors import DataError, EngineError
from truing.models.forward.collate import collate
from truing.models.forward.score import causal_model, distributions
from truing.ops.sampling import processed_logits, support_ids
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.utils.rng import seed_of

PARAMS = {
    "raw": SamplingParams(),
    "temperature": SamplingParams(temperature=0.7),
    "presence": SamplingParams(presence_penalty=1.5),
    "frequency": SamplingParams(frequency_penalty=0.8, temperature=1.3),
    "min_new_tokens": SamplingParams(min_new_tokens=6, stop_ids=tuple(range(0, 49152, 2))),
    "top_k": SamplingParams(top_k=12),
    "top_k and top_p": SamplingParams(top_k=20, top_p=0.8, temperature=1.2),
    "top_k and min_p": SamplingParams(top_k=20, min_p=0.1),
    "all": SamplingParams(
        temperature=0.8,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        min_new_tokens=4,
        top_k=20,
        top_p=0.9,
        stop_ids=(2, 28, 30),
    ),
}


@pytest.fixture(scope="module")
def published(smollm2):
    """An engine that holds moved weights."""
    with smollm2.engine() as engine:
        smollm2.move(seed=1)
        smollm2.publish(engine, 1)
        yield engine


def requests_of(policy, key="drawn"):
    return [Request(row, (key, i)) for i, row in enumerate(canary_prompts(policy))]


def logits_of(policy, request, turn):
    """The logits that each token of a turn was drawn from, by transformers' own forward."""
    ids = torch.cat([request.prompt_ids, turn.token_ids[:-1]])
    with torch.no_grad():
        return causal_model(policy)(ids[None], logits_to_keep=len(turn.token_ids)).logits[0].float()


@pytest.mark.parametrize("name", PARAMS)
def test_log_probabilities_are_those_of_the_declared_parameters(smollm2, published, name):
    params = replace(PARAMS[name], max_new_tokens=12)
    requests = requests_of(smollm2.policy)
    turns = generate(published, requests, params)
    compared = compare_scores(smollm2.policy, requests, turns, params)
    assert compared["tokens"] >= len(requests) * max(1, params.min_new_tokens)
    assert all(turn.version == 1 and turn.weight_digest == published.weight_digest for turn in turns)
    assert all((turn.support is not None) == params.truncates_support for turn in turns)


@pytest.mark.parametrize("name", ["raw", "temperature", "all"])
def test_each_draw_follows_from_the_seed_of_its_request(smollm2, published, name):
    params = replace(PARAMS[name], max_new_tokens=8)
    requests = requests_of(smollm2.policy, f"replayed {name}")
    for request, turn in zip(requests, generate(published, requests, params), strict=True):
        row = canary_sample("row", request.prompt_ids, turn.token_ids, params, turn.support)
        ((places, logprob_KV),) = distributions(smollm2.policy, collate([row]), collate([row]).policy_mask)
        noise = race_noise("hashed", seed_of(*request.rng_key), logprob_KV.shape[1])
        noise_KV = torch.stack([next(noise) for _ in places])
        assert float(behind(logprob_KV, turn.token_ids, noise_KV).max()) < 1e-3


@pytest.mark.parametrize("name", ["top_k", "top_k and top_p", "top_k and min_p", "all"])
def test_support_is_the_set_of_ids_that_could_be_sampled(smollm2, published, name):
    params = replace(PARAMS[name], max_new_tokens=5, min_new_tokens=min(4, PARAMS[name].min_new_tokens))
    requests = requests_of(smollm2.policy, "support")
    for request, turn in zip(requests, generate(published, requests, params), strict=True):
        for t, logits in enumerate(logits_of(smollm2.policy, request, turn)):
            allowed = processed_logits(logits[None], params, turn.token_ids[None, :t])[0] > -torch.inf
            assert sorted(turn.support.at(t).tolist()) == support_ids(allowed).tolist()


def test_greedy_takes_the_most_likely_id(smollm2, published):
    params = SamplingParams(temperature=0, max_new_tokens=6)
    for request, turn in zip(
        requests_of(smollm2.policy),
        generate(published, requests_of(smollm2.policy), params),
        strict=True,
    ):
        assert not turn.logprob.any()
        assert turn.token_ids.tolist() == logits_of(smollm2.policy, request, turn).argmax(-1).tolist()


def test_turns_end_at_their_limit_or_at_a_declared_stop_id(smollm2, published):
    requests = requests_of(smollm2.policy, "ends")
    free = generate(published, requests, SamplingParams(max_new_tokens=24))
    assert [len(turn.token_ids) for turn in free] == [24, 24, 24]
    assert {turn.finish_reason for turn in free} == {FinishReason.LENGTH}

    stops = tuple(int(turn.token_ids[9]) for turn in free)
    for turn, whole in zip(
        generate(published, requests, SamplingParams(max_new_tokens=24, stop_ids=stops)), free, strict=True
    ):
        first = next(t for t, token in enumerate(whole.token_ids.tolist()) if token in stops)
        assert turn.token_ids.tolist() == whole.token_ids[: first + 1].tolist()
        assert turn.finish_reason is FinishReason.STOP


def test_an_end_of_sequence_that_is_not_declared_is_a_token_like_any_other(lora_qwen3):
    params = SamplingParams(max_new_tokens=400, stop_ids=(0,))
    with lora_qwen3.engine() as engine:
        lora_qwen3.publish(engine, 1)
        turns = generate(engine, [Request(torch.arange(9) + n, ("eos", n)) for n in range(8)], params)
    (eos,) = lora_qwen3.loaded.stop_ids
    assert any(eos in turn.token_ids[:-1].tolist() for turn in turns)
    for turn in turns:
        ids = turn.token_ids.tolist()
        assert 0 not in ids[:-1]
        assert len(ids) == 400 or ids[-1] == 0


def test_penalties_do_not_count_a_forced_prefix(smollm2, published):
    (row, *_) = canary_prompts(smollm2.policy)
    forced = torch.tensor([504, 3575, 504, 3575])
    prompt = torch.cat([row, forced])
    params = SamplingParams(max_new_tokens=8, presence_penalty=2.0, frequency_penalty=1.0)
    requests = [Request(prompt, ("forced",))]
    compare_scores(smollm2.policy, requests, generate(published, requests, params), params)


def test_the_same_key_gives_the_same_ids_and_another_key_others(smollm2, published):
    params = SamplingParams(max_new_tokens=16)
    first, again, other = (
        [turn.token_ids.tolist() for turn in generate(published, requests_of(smollm2.policy, key), params)]
        for key in ("key", "key", "other key")
    )
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_many_requests_in_flight_keep_their_own_answers(smollm2, published):
    params = SamplingParams(max_new_tokens=10, temperature=0.9)
    rows = [torch.arange(3 + n % 40) * (n + 3) % 49152 for n in range(40)]
    requests = [Request(row, ("many", n)) for n, row in enumerate(rows)]
    compare_scores(smollm2.policy, requests, generate(published, requests, params), params)


def test_more_prompts_than_a_batch_has_tokens_for(lora_qwen3):
    params = SamplingParams(max_new_tokens=3)
    requests = [Request((torch.arange(400) * (n + 3)) % 256, ("batch", n)) for n in range(12)]
    with lora_qwen3.engine() as engine:
        lora_qwen3.publish(engine, 1)
        compare_scores(lora_qwen3.policy, requests, generate(engine, requests, params), params)


def test_a_prompt_may_fill_the_context_and_no_more(smollm2, published):
    params = SamplingParams(max_new_tokens=4)
    assert published.context_length == 512
    fits, too_long = torch.arange(508) + 100, torch.arange(509) + 100
    requests = [Request(fits, ("long",))]
    (turn,) = generate(published, requests, params)
    assert len(turn.token_ids) == 4
    compare_scores(smollm2.policy, requests, [turn], params)
    with pytest.raises(DataError, match="longer than the context allows"):
        generate(published, [Request(too_long, ("long",))], params)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (SamplingParams(repetition_penalty=1.1), "repetition_penalty"),
        (SamplingParams(top_p=0.9), "top_p or min_p without top_k"),
        (SamplingParams(top_k=500), "top_k"),
    ],
)
def test_parameters_that_vllm_cannot_keep_are_refused_by_name(published, params, named):
    with pytest.raises(EngineError, match=rf"sampling\.{named}"):
        generate(published, [], params)
