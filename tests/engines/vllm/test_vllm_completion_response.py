"""Everything in an answer is checked against its request; nothing is filled in."""

import copy

import pytest
import torch

from truing.engines.base import Request
from truing.engines.vllm.client import ServerLostError
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.errors import EngineError, NonFiniteError
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason

PARAMS = SamplingParams(max_new_tokens=3, stop_ids=(9,))
REQUEST = Request(torch.tensor([1, 2]), ("key",))
ANSWER = {
    "request_id": "generate-tokens-7f",
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "token_ids": [4, 5, 9],
            "logprobs": {
                "content": [
                    {
                        "token_id": token,
                        "logprob": -0.5,
                        "top_logprobs": [{"token_id": token, "logprob": -0.5}],
                    }
                    for token in (4, 5, 9)
                ]
            },
            "finish_reason": "stop",
            "weight_versions": [{"version": "3-digest", "start": 0, "end": 3}],
        }
    ],
}


def read(answer, params=PARAMS, version=3):
    return read_completion(answer, REQUEST, "7f", params, version, "digest", 100)


def changed(change):
    answer = copy.deepcopy(ANSWER)
    change(answer, answer["choices"][0])
    return answer


def test_an_answer_becomes_a_completion():
    completion = read(ANSWER)
    assert completion.token_ids.tolist() == [4, 5, 9]
    assert completion.logprob.tolist() == [-0.5] * 3
    assert (completion.finish_reason, completion.version) == (FinishReason.STOP, 3)
    assert completion.support is None


def test_the_support_is_the_possible_ids():
    def lift(answer, choice):
        for token in choice["logprobs"]["content"]:
            token["top_logprobs"] += [{"token_id": 1, "logprob": -1.0}, {"token_id": 2, "logprob": -9999.0}]

    support = read(changed(lift), SamplingParams(max_new_tokens=3, stop_ids=(9,), top_k=3)).support
    assert support is not None
    assert support.at(0).tolist() == [1, 4]


MALFORMED = {
    "no choices": lambda answer, choice: answer.pop("choices"),
    "two choices": lambda answer, choice: answer["choices"].append(choice),
    "no ids": lambda answer, choice: choice.pop("token_ids"),
    "ids that are none": lambda answer, choice: choice.update(token_ids=["x"]),
    "no log-probabilities": lambda answer, choice: choice.update(logprobs=None),
    "a log-probability that is none": lambda answer, choice: choice["logprobs"]["content"][0].update(
        logprob=None
    ),
    "no reason": lambda answer, choice: choice.pop("finish_reason"),
    "another reason": lambda answer, choice: choice.update(finish_reason="tired"),
    "spans that are none": lambda answer, choice: choice.update(weight_versions=[3]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_is_refused(name):
    with pytest.raises(EngineError, match="does not fit its request") as error:
        read(changed(MALFORMED[name]))
    assert error.value.expected == "an answer of vLLM"
    assert "the server's version and arguments" in error.value.remedy


def test_an_aborted_answer_is_sent_again():
    with pytest.raises(ServerLostError, match="aborted a request"):
        read(changed(lambda answer, choice: choice.update(finish_reason="abort")))


WRONG = {
    "log-probabilities of other ids": (
        lambda answer, choice: choice["logprobs"]["content"][1].update(token_id=6),
        r"log-probabilities of \[4, 6, 9\]",
    ),
    "too long": (
        lambda answer, choice: (
            choice["token_ids"].insert(0, 4),
            choice["logprobs"]["content"].insert(0, choice["logprobs"]["content"][0]),
        ),
        "4 ids",
    ),
    "no token": (
        lambda answer, choice: choice.update(token_ids=[], logprobs={"content": []}),
        "0 ids",
    ),
    "an undeclared stop": (
        lambda answer, choice: (choice["token_ids"].pop(), choice["logprobs"]["content"].pop()),
        "finish reason stop after 2 ids",
    ),
    "a stop that is left out": (
        lambda answer, choice: (
            choice["token_ids"].pop(),
            choice["logprobs"]["content"].pop(),
            choice.update(stop_reason=9),
        ),
        "finish reason stop after 2 ids, stop reason 9",
    ),
    "the reason of a cut after a stop": (
        lambda answer, choice: choice.update(finish_reason="length"),
        "finish reason length after the stop id 9",
    ),
    "the reason of a stop at the limit": (
        lambda answer, choice: (
            choice["token_ids"].reverse(),
            choice["token_ids"].__setitem__(0, 4),
            choice["logprobs"].update(content=[{"token_id": t, "logprob": -0.5} for t in (4, 5, 4)]),
        ),
        "at the limit of 3",
    ),
    "beyond a stop": (
        lambda answer, choice: (
            choice["token_ids"].reverse(),
            choice["logprobs"]["content"].reverse(),
        ),
        r"stop ids at \[0\]",
    ),
    "cut before its limit": (
        lambda answer, choice: (
            choice["token_ids"].pop(),
            choice["logprobs"]["content"].pop(),
            choice.update(finish_reason="length"),
        ),
        "length after 2 ids",
    ),
    "weights of another version": (
        lambda answer, choice: choice["weight_versions"][0].update(version="2"),
        r"tokens of weights \['2'\]",
    ),
    "weights of two versions": (
        lambda answer, choice: choice["weight_versions"].append(
            {"version": "4-digest", "start": 2, "end": 3}
        ),
        r"tokens of weights \['3-digest', '4-digest'\]",
    ),
    "weights of no version": (lambda answer, choice: choice.update(weight_versions=None), r"weights \[\]"),
    "the answer to another request": (
        lambda answer, choice: answer.update(prompt_token_ids=[1, 3]),
        "an answer to another request",
    ),
    "the answer to a request of equal prompt": (
        lambda answer, choice: answer.update(request_id="generate-tokens-8a"),
        "the request id generate-tokens-8a",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_does_not_fit_is_refused_and_says_why(name):
    change, got = WRONG[name]
    with pytest.raises(EngineError, match=got) as error:
        read(changed(change))
    assert error.value.expected


def test_a_stop_that_was_banned_is_refused():
    with pytest.raises(EngineError, match=r"stops before sampling\.min_new_tokens"):
        read(ANSWER, SamplingParams(max_new_tokens=4, stop_ids=(9,), min_new_tokens=3))


def test_a_log_probability_above_0_is_no_divergence():
    answer = changed(lambda answer, choice: choice["logprobs"]["content"][1].update(logprob=0.5))
    with pytest.raises(EngineError, match=r"(?s)log-probability above 0.*0\.5 for token 1 of a turn, id 5"):
        read(answer)


@pytest.mark.parametrize("name", ["request_id", "prompt_token_ids"])
def test_an_answer_that_does_not_repeat_its_request_is_refused(name):
    with pytest.raises(EngineError, match=f"(?s)does not repeat its request.*without {name}") as error:
        read(changed(lambda answer, choice: answer.pop(name)))
    assert "no proxy" in error.value.remedy


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -9999.0])
def test_an_impossible_log_probability_names_its_token(value):
    answer = changed(lambda answer, choice: choice["logprobs"]["content"][1].update(logprob=value))
    with pytest.raises(NonFiniteError, match="token 1 of a turn, id 5"):
        read(answer)


def test_greedy_tokens_have_log_probability_0():
    assert (
        read(ANSWER, SamplingParams(temperature=0.0, max_new_tokens=3, stop_ids=(9,))).logprob.tolist()
        == [0] * 3
    )


def test_unproven_weights_may_answer_a_proof():
    assert read(ANSWER, version=None).version == 0


def test_a_scored_prompt_has_a_log_probability_for_each_id_but_the_first():
    row = torch.tensor([7, 8, 9])
    found = read_prompt_logprobs(
        {"prompt_logprobs": [None, {"8": {"logprob": -1.0}}, {"9": {"logprob": -2.0}}]}, row
    )
    assert found.tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    "scored",
    [
        None,
        [],
        [None],
        [None, {"8": {"logprob": -1.0}}],
        [None, {"5": {"logprob": -1.0}}, {"9": {"logprob": 0}}],
        3,
    ],
)
def test_a_scored_prompt_without_some_id_is_refused(scored):
    with pytest.raises(EngineError, match="does not fit its request"):
        read_prompt_logprobs({"prompt_logprobs": scored}, torch.tensor([7, 8, 9]))


PLACES = {
    "an id": lambda choice, value: choice["token_ids"].__setitem__(0, value),
    "a scored id": lambda choice, value: choice["logprobs"]["content"][0].update(token_id=value),
    "an id of the support": lambda choice, value: choice["logprobs"]["content"][0]["top_logprobs"][0].update(
        token_id=value
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [-1, 100, 2**31, 2**63, 10**400, True, 4.0, "4", None, [4]], ids=repr)
def test_an_id_outside_the_vocabulary_is_no_answer(place, value):
    answer = changed(lambda answer, choice: PLACES[place](choice, value))
    with pytest.raises(EngineError, match="vLLM's answer does not fit its request") as raised:
        read(answer, SamplingParams(max_new_tokens=3, stop_ids=(9,), top_k=3))
    assert "is not an id below 100" in raised.value.got
