"""A server that does not read the beginning of a prompt is refused, however little the beginning changes."""

from dataclasses import replace

import pytest
import torch

from dev.faults.planted import FAULTS
from truing.engines.base import Request, generate
from truing.engines.vllm.proof.compare_draws import compare_beginnings
from truing.engines.vllm.proof.prompts import with_other_beginning
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams

PARAMS = SamplingParams(max_new_tokens=4)
PROMPT = torch.arange(400) % 250


def turns(engine):
    requests = [Request(prompt, ("canary",)) for prompt in (PROMPT, with_other_beginning(PROMPT))]
    return [(request, generate(engine, [request], PARAMS)[0]) for request in requests]


@pytest.fixture
def engine_and_policy(served, opened, train):
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy, size=0.3)
    engine.publish(policy, 1, "one")
    return engine, policy


def test_a_quarter_of_the_prompt_is_another_one():
    other = with_other_beginning(PROMPT)
    assert other[100:].equal(PROMPT[100:])
    assert other[:100].equal(PROMPT[:100].flip(0))


def test_a_server_that_reads_the_prompt_is_right(engine_and_policy):
    engine, policy = engine_and_policy
    compare_beginnings(policy, *turns(engine), PARAMS)


def test_a_server_that_cuts_the_prompt_is_refused(engine_and_policy):
    engine, policy = engine_and_policy
    with FAULTS["vllm-prompts-cut"].plant(), pytest.raises(PublicationError, match="without the first 100"):
        compare_beginnings(policy, *turns(engine), PARAMS)


def test_an_equal_answer_is_right_if_the_beginning_changes_nothing(engine_and_policy):
    engine, policy = engine_and_policy
    turn, _ = turns(engine)
    same = replace(turn[0], prompt_ids=PROMPT), turn[1]
    compare_beginnings(policy, turn, same, PARAMS)
