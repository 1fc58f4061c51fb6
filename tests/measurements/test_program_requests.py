"""Requests and answers of programs, beside the turns of their rollouts."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from truing.envs.program_env import CallRules, ProgramEnv
from truing.measurements.program_requests import RequestsOfPrograms, WrittenAnswers
from truing.types.message import ToolSpec
from truing.types.model_call import ModelCall, Said, WrittenAnswer
from truing.types.rollout import FIRST_CONVERSATION, Rollout, Task, Turn
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason, Status

USER, AGAIN = {"role": "user", "content": "one?"}, {"role": "user", "content": "two?"}
TITLE = ({"role": "system", "content": "Title:"}, {"role": "user", "content": "one"})
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


class Programs(SimpleNamespace):
    """What a measurement reads of an environment of programs."""

    at_once, rewards, notes = 1, {}, ()
    tasks = run = begin_collection = stop = lambda *_: None


def said(text):
    return {"role": "assistant", "content": text}


def turn(call, *, begins="", trained=True):
    none, ids = torch.zeros(0, dtype=torch.uint8), torch.tensor([1, 2])
    sampled = torch.zeros(2, dtype=torch.uint8)
    streams = (none.long(), none, ids, sampled, torch.zeros(2, dtype=torch.bool), torch.zeros(2))
    return Turn(*streams, FinishReason.STOP, 0, "", restart_reason=begins, call=call, trained=trained)


def written(number, messages, text, **changes):
    return WrittenAnswer(f"g-0-{number}", ModelCall(messages, **changes), Said(content=text))


def rollout():
    """A conversation of two turns, and then a title, which is not trained."""
    first = (USER, said("1"), AGAIN, said("2"))
    return Rollout(
        "g/0",
        "g",
        Task("t", "family", (USER,), "1"),
        (turn(1, begins=FIRST_CONVERSATION), turn(2), turn(3, begins=FIRST_CONVERSATION, trained=False)),
        "2",
        Status.DONE,
        SamplingParams(max_new_tokens=8),
        reward=1.0,
        sample_messages=(first, (*TITLE, said("a title"))),
        sample_tools=((), ()),
        answers=(
            written(1, (USER,), "1"),
            written(2, first[:3], "2"),
            written(3, TITLE, "a title"),
        ),
        outcome={"calls": [{"call": 1}, {"call": 2, "continues": 1}, {"call": 3}]},
    )


def facts(measurement, made, **rules):
    step = SimpleNamespace(
        samples=SimpleNamespace(rollouts={"g/0": made}),
        sampler=SimpleNamespace(
            chat=SimpleNamespace(tool_format="hermes"), env=Programs(calls=CallRules(**rules))
        ),
        recipe=SimpleNamespace(episode=SimpleNamespace(grammar="off")),
    )
    assert isinstance(step.sampler.env, ProgramEnv)
    return measurement(step).after_step()


def with_answer(made, number, answer):
    answers = [answer if i == number else each for i, each in enumerate(made.answers, 1)]
    return replace(made, answers=tuple(answers))


def test_requests_that_are_answered_as_they_came():
    assert facts(RequestsOfPrograms, rollout()) == {
        "program_requests": {"requests": 3, "messages": 0, "tools": 0, "options": 0, "beyond": 0, "flags": 0}
    }
    assert facts(WrittenAnswers, rollout()) == {"program_answers": {"answers": 3, "altered": 0}}


@pytest.mark.parametrize(
    ("number", "answer", "kind"),
    [
        (2, written(2, ({**USER, "content": "other?"}, said("1"), AGAIN), "2"), "messages"),
        (2, written(2, (USER, said("1"), {"role": "user", "content": "x"}, AGAIN), "2"), "messages"),
        (3, written(3, TITLE, "a title", tools=(LOOK,)), "tools"),
        (1, written(1, (USER,), "1", wanted={"stop": ["\\n"]}), "options"),
    ],
)
def test_a_request_that_is_answered_otherwise_is_counted(number, answer, kind):
    fact = facts(RequestsOfPrograms, with_answer(rollout(), number, answer))["program_requests"]
    assert (fact[kind], fact["rollout"], fact["call"]) == (1, "g/0", number)


def test_a_copy_of_the_answer_in_another_form_is_no_difference():
    copy = {"role": "assistant", "content": "  1 "}
    fact = facts(RequestsOfPrograms, with_answer(rollout(), 2, written(2, (USER, copy, AGAIN), "2")))
    assert fact["program_requests"]["messages"] == 0


def test_calls_beyond_the_limit_and_flags_against_the_rule_are_counted():
    assert facts(RequestsOfPrograms, rollout(), max_calls=2)["program_requests"]["beyond"] == 1
    everything = facts(RequestsOfPrograms, rollout(), trains=lambda call, first: True)["program_requests"]
    assert (everything["flags"], everything["call"]) == (1, 3)
    nothing = facts(RequestsOfPrograms, rollout(), trains=lambda call, first: False)["program_requests"]
    assert nothing["flags"] == 1  # of the first conversation, whose second call is trained as its first


@pytest.mark.parametrize("heard", [Said(content="3"), Said(content="2", cut=True), Said(readable=False)])
def test_an_answer_that_says_something_else_is_counted(heard):
    made = rollout()
    fact = facts(WrittenAnswers, with_answer(made, 2, replace(made.answers[1], said=heard)))[
        "program_answers"
    ]
    assert (fact["altered"], fact["call"]) == (1, 2)


def test_a_rollout_that_failed_is_not_looked_at():
    assert facts(RequestsOfPrograms, replace(rollout(), status=Status.ERROR)) == {}
