"""What becomes of a program's calls: which continue each other, and which tokens are trained."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from folders import ROOT
from tests.rollouts.programs.scripted import asks, call_tool, program_rollout, said, system, tool_reply, user

from truing.algos.flatten import flatten
from truing.chat import make_chat
from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.writing import calls_of
from truing.envs.program_env import CallRules
from truing.measurements.draw_replay import draw_numbers
from truing.rollouts.call_queue import PendingCall
from truing.rollouts.programs.finished import finished_rollout
from truing.rollouts.programs.history import differences
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.model_call import ModelCall
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Excluded, Origin

RECEIVED = SimpleNamespace(
    has_left=lambda name, outcome: True,
    answers=lambda name: (),
    has_crashed=lambda name: False,
)


def samples(rollout):
    """The samples of a rollout by their first call, once what holds of all was seen to hold."""
    finished = finished_rollout(rollout, RECEIVED)
    made = flatten(finished)
    drawn = torch.cat([turn.token_ids for turn in finished.turns])
    sampled = torch.cat([sample.token_ids[sample.origin == Origin.SAMPLED] for sample in made])
    assert torch.equal(sampled, drawn), "each sampled id is SAMPLED in exactly one sample"
    calls = [span.call for sample in made for span in sample.turns]
    assert sorted(calls) == sorted({*calls}), "each call is a turn of exactly one sample"
    graded = max(
        (call.number for call in rollout.calls if call.conversation.trained and call.given), default=0
    )
    assert not graded or made[-1].turns[-1].call == graded, "the last sample has the answer that is graded"
    return sorted(made, key=lambda sample: sample.turns[0].call)


def test_a_call_that_extends_an_earlier_one_extends_its_ids(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [user("one"), said(first), user("two")], "another")
    (sample,) = samples(rollout)
    assert [span.call for span in sample.turns] == [1, 2]
    assert rollout.calls[1].notes == {"continues": 1}


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"content": "  a \n word"}, ["white space"]),
        ({"content": "a word", "reasoning_content": "thought"}, ["reasoning"]),
    ],
)
def test_a_message_given_back_in_another_form_is_the_same_message(chat, change, written):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [user("one"), {**said(first), **change}, user("two")], "another")
    assert len(samples(rollout)) == 1
    assert rollout.calls[1].notes == {"continues": 1, "written_differently": written}


def test_renamed_ids_and_reordered_arguments_are_the_same_call_and_the_tool_answers_it(chat):
    rollout = program_rollout(chat)
    ask = [user("one")]
    first = asks(rollout, chat, ask, call_tool("look", word="a", n=1), tools=True)
    (call,) = first.message.calls
    assert call.arguments == {"word": "a", "n": 1}
    given = {
        **said(first),
        "tool_calls": [
            {
                "id": "theirs",
                "type": "function",
                "function": {"name": "look", "arguments": {"n": 1, "word": "a"}},
            }
        ],
    }
    asks(rollout, chat, [*ask, given, tool_reply("theirs", "moon")], "the moon", tools=True)
    assert rollout.calls[1].notes["continues"] == 1
    assert rollout.calls[1].notes["written_differently"] == ["order of arguments"]
    (message,) = [each for each in rollout.conversations[0].dialogue.messages if each["role"] == "tool"]
    assert message == {"role": "tool", "content": "moon", "name": "look", "tool_call_id": "call00000"}
    assert len(samples(rollout)) == 1


def test_an_id_that_the_policy_writes_again_is_another_for_the_client(tiny):
    tiny.tokenizer.chat_template = (ROOT / "tests/data/templates/mistral_nemo.jinja").read_text()
    chat = make_chat(tiny.tokenizer, tiny.stop_ids)
    rollout = program_rollout(chat)
    call = ToolCall("look", {"word": "a", "n": 1}, "abcDEF012")
    messages = [user("one")]
    for _ in range(2):
        reply = asks(rollout, chat, messages, AssistantMessage(calls=(call, call)), tools=True)
        ids = [id for id, _ in calls_of(reply)]
        given = AssistantMessage(calls=tuple(replace(call, id=id) for id in ids)).to_dict()
        messages += [given, *(tool_reply(id, f"result {i}") for i, id in enumerate(ids))]
        assert len(rollout.conversations) == 1
    asks(rollout, chat, messages, "the moon", tools=True)
    sent = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len({*sent}) == 4
    assert sent[0] == "abcDEF012"
    assert rollout.calls[2].notes == {"continues": 2, "written_differently": ["ids of calls"]}
    replies = [each for each in rollout.conversations[0].dialogue.messages if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in replies] == ["abcDEF012"] * 4
    assert [each["content"] for each in replies] == ["result 0", "result 1"] * 2


@pytest.mark.parametrize(("own", "noted"), [("a1b2c3d4e", ["ids of calls"]), ("call00000", [])])
def test_another_id_of_a_call_is_noted_where_the_policy_writes_ids(own, noted):
    def message(id):
        return {"role": "assistant", "content": "", "tool_calls": [{"id": id, "function": {"arguments": {}}}]}

    assert differences(message(own), message("theirs"), "hermes") == noted


def test_two_calls_that_continue_one_are_two_samples_and_no_id_is_trained_twice(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [user("one"), said(first), user("two")], "left")
    asks(rollout, chat, [user("one"), said(first), user("three")], "right")
    one, other = samples(rollout)
    assert [span.call for span in one.turns] == [1, 2]
    assert [span.call for span in other.turns] == [3]
    assert torch.equal(other.token_ids[: one.turns[0].end], one.token_ids[: one.turns[0].end])
    assert not other.policy_mask[: one.turns[0].end].any()
    assert other.policy_mask[other.turns[0].start :].all()
    assert rollout.calls[2].notes["restart"] == "calls 2 and 3 both continue call 1"


def test_an_edited_history_begins_a_sample_with_what_was_sampled_before_as_context(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a long word")
    asks(rollout, chat, [user("one"), {**said(first), "content": "short"}, user("two")], "another")
    _, other = samples(rollout)
    assert other.policy_mask.sum() == other.turns[0].end - other.turns[0].start
    assert (
        "edits the history of call 1: message 2 was 'a long word' and is 'short'"
        in rollout.calls[1].notes["restart"]
    )


def test_a_conversation_of_its_own_is_not_trained_unless_the_recipe_says_so(chat):
    for trains, expected in (
        (lambda call, first: first, Excluded.OTHER_CONVERSATION),
        (lambda call, first: True, Excluded.NO),
    ):
        rollout = program_rollout(chat, CallRules(trains=trains))
        asks(rollout, chat, [user("one")], "a word")
        asks(rollout, chat, [system("Write a title."), user("a word")], "Title")
        one, title = samples(rollout)
        assert one.policy_mask.any()
        sampled = title.origin == Origin.SAMPLED
        assert {*title.excluded[sampled].tolist()} == {expected}
        assert title.policy_mask.any() == title.value_mask.any() == (expected is Excluded.NO)
        assert title.messages[0]["content"] == "Write a title."


def test_the_first_conversation_goes_on_after_another_and_draws_follow_the_calls(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [system("Title:"), user("a word")], "Title")
    asks(rollout, chat, [user("one"), said(first), user("two")], "another")
    asks(rollout, chat, [system("Title:"), user("another")], "Title")
    one, *titles = samples(rollout)
    assert [turn.call for turn in one.turns] == [1, 3]
    assert [[turn.call for turn in title.turns] for title in titles] == [[2], [4]]
    numbers = draw_numbers(flatten(finished_rollout(rollout, RECEIVED)))
    assert sorted(numbers.values()) == [[0, 2], [1], [3]]


def test_an_equal_call_is_another_draw_unless_the_client_sends_it_again(chat):
    rollout = program_rollout(chat)
    asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [user("one")], "other")
    assert len(rollout.calls) == 2
    again = asks(rollout, chat, [user("one")], None, retry=True)
    assert len(rollout.calls) == 2
    assert again.message.content == "a word"


def test_an_answer_that_no_client_got_goes_to_the_next_equal_call_and_is_not_trained_without_one(chat):
    rollout = program_rollout(chat)
    gone = asks(rollout, chat, [user("one")], "a word", gone=True)
    assert gone is None
    assert finished_rollout(rollout, RECEIVED).status is Status.ERROR
    assert asks(rollout, chat, [user("one")], None).message.content == "a word"
    assert len(samples(rollout)) == 1


def test_what_is_graded_is_the_last_answer_that_the_program_got(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [user("one"), said(first), user("two")], "never read", gone=True)
    finished = finished_rollout(rollout, RECEIVED)
    assert finished.text == "a word"
    assert [message["content"] for message in finished.messages] == ["a word"]


@pytest.mark.parametrize(
    ("messages", "wanted", "text"),
    [
        ([user("one"), {"role": "assistant", "content": "I"}], {}, "not continued"),
        ([user("one " * 4000)], {}, "context_length_exceeded"),
        ([user("one")], {"temperature": 0.1}, "temperature"),
    ],
)
def test_what_is_not_answered_is_refused_in_words_and_counted(chat, messages, wanted, text):
    rollout = program_rollout(chat)
    with pytest.raises(CallRefused, match=text):
        asks(rollout, chat, messages, "never", wanted=wanted)
    finished = finished_rollout(rollout, RECEIVED)
    assert finished.status is Status.ERROR
    assert text in finished.error
    assert text in finished.outcome["refused"][0]


LONG = "a word " * 200_000
CALLED = call_tool("look", word="x", n=1).to_dict()


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([user("one"), call_tool("look", word=LONG, n=1).to_dict(), tool_reply("call00000", "so")], ()),
        ([user("one"), {**CALLED, "reasoning_content": LONG}, tool_reply("call00000", "so")], ()),
        ([user("one"), {**CALLED, "content": f"<think>{LONG}</think>"}, tool_reply("call00000", "so")], ()),
        ([user("one"), {**CALLED, "content": " " * len(LONG)}, tool_reply("call00000", "so")], ()),
        ([{**user("one"), "name": LONG}], ()),
        ([user("one")], (ToolSpec("look", LONG, {}),)),
        ([user("one")], (ToolSpec("look", "Look.", {"properties": {"a": {"description": LONG}}}),)),
    ],
    ids=["arguments", "reasoning", "reasoning as text", "white space", "name", "description", "schema"],
)
def test_long_text_anywhere_in_a_call_is_refused_at_once(chat, messages, tools):
    rollout = program_rollout(chat)
    pending = PendingCall(rollout.name, ModelCall(tuple(messages), tools))
    began = time.monotonic()
    assert rollout.begin(pending) is None
    assert time.monotonic() - began < 1
    with pytest.raises(CallRefused, match="context_length_exceeded"):
        pending.answer.result(timeout=0)


def test_reasoning_that_the_prompt_does_not_show_may_be_longer_than_the_context(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    thought = {**said(first), "reasoning_content": "so " * 8000}
    assert asks(rollout, chat, [user("one"), thought, user("two")], "another").message.content == "another"


@pytest.mark.parametrize(
    "schema", [{"required": [{}]}, {"properties": {"a": {"minimum": "5"}}}, {"$ref": "#/$defs/none"}]
)
def test_a_tool_whose_schema_is_none_is_refused(chat, schema):
    rollout = program_rollout(chat)
    call = ModelCall((user("one"),), (ToolSpec("f", "A tool.", schema),))
    pending = PendingCall(rollout.name, call)
    assert rollout.begin(pending) is None
    with pytest.raises(CallRefused, match="the schema of the tool 'f' cannot be used"):
        pending.answer.result(timeout=0)


@pytest.mark.parametrize(("grammar", "noted"), [("off", ["strict"]), ("calls", None)])
def test_strict_tools_are_noted_where_no_grammar_makes_them_so(chat, grammar, noted):
    rollout = program_rollout(chat, grammar=grammar)
    asks(rollout, chat, [user("one")], "a word", wanted={"strict": True})
    assert rollout.calls[0].notes.get("overridden") == noted


@pytest.mark.parametrize("limit", [{"max_calls": 1}, {"max_tokens": 3}])
def test_more_than_the_recipe_allows_truncates_the_rollout(chat, limit):
    rollout = program_rollout(chat, CallRules(**limit))
    first = asks(rollout, chat, [user("one")], "a word")
    with pytest.raises(CallRefused, match=r"env\.max_\w+ = "):
        asks(rollout, chat, [user("one"), said(first), user("two")], "never")
    finished = finished_rollout(rollout, RECEIVED)
    assert (finished.status, finished.ended_by) == (Status.TRUNCATED, EndedBy.TURNS)


def test_a_turn_that_is_cut_truncates_a_rollout_only_if_it_is_the_last(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word", cut=True)
    assert first.finish_reason is FinishReason.LENGTH
    assert finished_rollout(rollout, RECEIVED).ended_by is EndedBy.LENGTH
    asks(rollout, chat, [user("one"), said(first), user("go on")], "done")
    assert finished_rollout(rollout, RECEIVED).status is Status.DONE


def test_a_special_token_that_the_policy_wrote_is_ordinary_text_in_another_conversation(chat):
    rollout = program_rollout(chat)
    stop = chat.stops[0]
    asks(rollout, chat, [user("one")], "a word")
    asks(rollout, chat, [system("Title:"), user(f"a {stop} word")], "Title")
    _, title = samples(rollout)
    contents = title.token_ids[title.origin == Origin.PROMPT]
    assert not torch.isin(contents, torch.tensor(chat.stop_ids)).any()


def test_draws_are_keyed_by_the_rollout_and_the_number_of_the_call(chat):
    rollout = program_rollout(chat)
    first = asks(rollout, chat, [user("one")], "a word")
    assert rollout.conversations[0].draw_key == rollout.key
    asks(rollout, chat, [user("one"), said(first), user("two")], "another")
    assert rollout.conversations[0].draw_key == (*rollout.key, 1)
    asks(rollout, chat, [system("s"), user("x")], "aside")
    assert rollout.conversations[1].draw_key == (*rollout.key, 2)
    assert rollout.conversations[1].key != rollout.conversations[0].key
