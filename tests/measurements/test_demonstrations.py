"""Demonstrated ids beside the demonstrations of their tasks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from families import FORMAT_OF, chat_of
from samples import sample

from truing.chat import encode_reply
from truing.doctor.rules import msk007
from truing.measurements.demonstrations import demonstration_fact
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import DemonstratedText

MESSAGES = ({"role": "user", "content": "What is 3 and 4?"},)
TOOLS = (ToolSpec("add", "Adds.", {"type": "object", "properties": {"text": {"type": "string"}}}),)
CALL = AssistantMessage("I add.", (ToolCall("add", {"text": 'three "and" four', "plain": "3 4"}),))


def shown(chat, ids, name="t0", **known):
    return [sample([1, 2], [int(each) for each in ids], name=name, group=name, **known)]


def fact(chat, demonstrated, trained):
    """Tasks with demonstrations, of which the sample of each has the ids of another text."""
    tasks = {f"t{i}": SimpleNamespace(demonstration=each) for i, each in enumerate(demonstrated)}
    rows = []
    for i, each in enumerate(trained):
        message = AssistantMessage(each) if isinstance(each, str) else each
        ids = encode_reply(chat, MESSAGES, message, TOOLS if message.calls else ())
        rows.append(shown(chat, ids, f"t{i}"))
    return demonstration_fact(chat, tasks, rows)


@pytest.mark.parametrize("family", FORMAT_OF)
@pytest.mark.parametrize("message", ["It is 7.", CALL, replace(CALL, content="")])
def test_demonstrations_of_any_template_are_those_of_their_tasks(family, message):
    chat = chat_of(family)
    turns = message if isinstance(message, str) else (message,)
    assert fact(chat, [turns] * 3, [message] * 3) == {"checked": 3, "other": 0}


@pytest.mark.parametrize("family", FORMAT_OF)
def test_contents_that_are_letters_of_the_template_are_there_once(family):
    contents = ["e", "t", "in", "think", "end"]
    assert fact(chat_of(family), contents, contents) == {"checked": 5, "other": 0}


def test_a_whole_text_has_its_ids(chat):
    text = DemonstratedText((1, 2, 3, 4), context=2)
    tasks = {"t0": SimpleNamespace(demonstration=text)}
    assert demonstration_fact(chat, tasks, [shown(chat, [3, 4])])["other"] == 0
    assert demonstration_fact(chat, tasks, [shown(chat, [4, 3])])["other"] == 1


@pytest.mark.parametrize(
    ("demonstrated", "trained", "other"),
    [
        (["12", "7", "9"], ["7", "9", "12"], 3),
        (["12", "7", "9"], ["12", "", "9"], 1),
        (["12", "7", "9"], ["12", "77", "9"], 1),
        (["12", "34", "56"], ["1212", "3434", "5656"], 3),
        (["12", "7", "9"], ["12", "17", "9"], 1),  # which has the right answer in it
        ([(CALL,), "7", "9"], [replace(CALL, calls=()), "7", "9"], 1),
        ([(CALL, AssistantMessage("7")), "7", "9"], [CALL, "7", "9"], 1),  # a turn is missing
    ],
)
def test_other_texts_differ(demonstrated, trained, other):
    assert fact(chat_of("qwen3_5"), demonstrated, trained)["other"] == other


def test_a_turn_without_its_stop_differs(chat):
    ids = encode_reply(chat, MESSAGES, AssistantMessage("12"), ())
    tasks = {"t0": SimpleNamespace(demonstration="12")}
    assert demonstration_fact(chat, tasks, [shown(chat, ids)])["other"] == 0
    assert demonstration_fact(chat, tasks, [shown(chat, ids[:-1])]) == {
        "checked": 1,
        "other": 1,
        "sample_id": "t0",
        "got": "12",
        "expected": "12",
    }


def test_a_task_that_is_no_training_task_is_left_out(chat):
    assert demonstration_fact(chat, {}, [shown(chat, [65])]) == {"checked": 0, "other": 0}


def test_a_loss_with_something_else_in_it_is_claimed():
    (claim,) = msk007.judge(msk007.with_entropy())
    assert claim.what.startswith("the recorded supervised loss is not")
