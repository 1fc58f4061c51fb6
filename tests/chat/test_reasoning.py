"""Demonstrations for templates whose prompt opens a thought, or writes an empty one."""

import pytest
import torch
from episodes import TASK, USER, as_written, run_episode
from families import FORMAT_OF, chat_of

from truing.algos.flatten import flatten
from truing.chat import encode_reply, render_prompt
from truing.chat.reasoning import opened_reasoning, reply_start
from truing.chat.render import text_of
from truing.errors import DataError, ModelError
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task
from truing.types.token import Origin

CALL = AssistantMessage("So.", (ToolCall("look", {"word": "a", "n": 1}),))
DONE = AssistantMessage("It is a.")
ON, OFF = {}, {"template_kwargs": {"enable_thinking": False}}

QWEN_CALL = (
    "So.\n\n<tool_call>\n<function=look>\n<parameter=word>\na\n</parameter>\n"
    "<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"
)
NEMOTRON_CALL = QWEN_CALL.replace("So.\n\n", "So.\n") + "\n"
GLM_CALL = (
    "So.\n<tool_call>look\n<arg_key>word</arg_key>\n<arg_value>a</arg_value>\n"
    "<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
)
GLM_LINE = GLM_CALL.replace("\n", "")
END = "<|im_end|>"
WRITTEN = {
    ("qwen3_6", "on"): (
        "<think>\n",
        f"\n</think>\n\n{QWEN_CALL}<|im_end|>",
        "\n</think>\n\nIt is a.<|im_end|>",
    ),
    ("qwen3_6", "off"): ("<think>\n\n</think>\n\n", f"{QWEN_CALL}<|im_end|>", "It is a.<|im_end|>"),
    ("qwen3_8", "on"): (
        "<think>\n",
        f"\n</think>\n\n{QWEN_CALL}<|im_end|>",
        "\n</think>\n\nIt is a.<|im_end|>",
    ),
    ("qwen3_8", "off"): ("<think>\n\n</think>\n\n", f"{QWEN_CALL}<|im_end|>", "It is a.<|im_end|>"),
    ("nemotron_3", "on"): ("<think>\n", f"</think>{NEMOTRON_CALL}<|im_end|>", "</think>It is a.<|im_end|>"),
    ("nemotron_3", "off"): ("<think></think>", f"{NEMOTRON_CALL}<|im_end|>", "It is a.<|im_end|>"),
    ("glm_4_5", "on"): (
        "<|assistant|>",
        f"\n<think></think>\n{GLM_CALL}<|observation|>",
        "\n<think></think>\nIt is a.<|user|>",
    ),
    ("glm_4_5", "off"): ("\n<think></think>", f"\n{GLM_CALL}<|observation|>", "\nIt is a.<|user|>"),
    ("glm_4_7", "on"): ("<think>", f"</think>{GLM_LINE}<|observation|>", "</think>It is a.<|user|>"),
    ("glm_4_7", "off"): ("</think>", f"{GLM_LINE}<|observation|>", "It is a.<|user|>"),
}


@pytest.mark.parametrize(("family", "mode"), WRITTEN)
def test_a_demonstration_is_what_the_policy_has_to_draw(family, mode):
    """The prompt is the template's, and the answer goes on from there, stop and all."""
    chat = chat_of(family, **(ON if mode == "on" else OFF))
    opened, call, done = WRITTEN[family, mode]
    rollout = run_episode(chat, as_written(chat, CALL), as_written(chat, DONE))
    texts = [text_of(chat, turn.token_ids) for turn in rollout.turns]
    assert texts == [call, done]
    for turn in rollout.turns:
        assert text_of(chat, turn.context_ids).endswith(opened)
        ids = chat.tokenizer(opened, add_special_tokens=False)["input_ids"]
        assert (turn.context_origin[-len(ids) :] == Origin.TEMPLATE).all(), "the prompt's, not drawn"
    assert rollout.messages[0]["tool_calls"][0]["function"]["arguments"] == {"word": "a", "n": 1}


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("family", [family for family in FORMAT_OF if not family.startswith("lfm2")])
def test_a_sample_has_the_prompts_ids_and_then_the_demonstration(family, mode):
    chat = chat_of(family, **(ON if mode == "on" else OFF))
    prompt = render_prompt(chat, TASK)
    said = encode_reply(chat, TASK.messages, CALL, TASK.tools)
    sample = flatten(run_episode(chat, as_written(chat, CALL), as_written(chat, DONE)))[0]
    both = torch.cat([prompt.token_ids, said])
    assert torch.equal(sample.token_ids[: len(both)], both)
    assert (sample.origin[: len(prompt.token_ids)] != Origin.SAMPLED).all()
    assert (sample.origin[len(prompt.token_ids) : len(both)] == Origin.SAMPLED).all()


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_6", "qwen3_8", "nemotron_3", "glm_4_5"])
def test_a_turn_that_was_opened_extends(family, mode):
    """The message holds the whole thought, so the template writes the past as it was said."""
    chat = chat_of(family, **(ON if mode == "on" else OFF))
    rollout = run_episode(chat, as_written(chat, CALL), as_written(chat, CALL), as_written(chat, DONE))
    assert [turn.restart_reason for turn in rollout.turns] == ["", "", ""]


@pytest.mark.parametrize("family", ["qwen3_6", "qwen3_8", "nemotron_3"])
def test_a_demonstrated_thought_goes_on_from_the_opened_one(family):
    chat = chat_of(family)
    thought = AssistantMessage("<think>\nhm\n</think>\n\nIt is a.")
    ids = encode_reply(chat, [USER], thought)
    assert text_of(chat, ids) == "hm\n</think>\n\nIt is a.<|im_end|>"
    rollout = run_episode(chat, as_written(chat, thought), task=Task("t", "f", (USER,)))
    assert rollout.messages[0]["content"] == "<think>\nhm\n</think>\n\nIt is a."


def test_glm_keeps_a_demonstrated_thought():
    ids = encode_reply(chat_of("glm_4_7"), [USER], AssistantMessage("<think>hm</think>It is a."))
    assert text_of(chat_of("glm_4_7"), ids) == "hm</think>It is a.<|user|>"


def test_where_the_past_has_no_thought_none_can_be_demonstrated():
    chat = chat_of("opened_and_dropped")
    with pytest.raises(DataError, match="differently from its generation prompt") as raised:
        encode_reply(chat, [USER], DONE)
    assert "demonstrate reasoning" in raised.value.remedy
    ids = encode_reply(chat, [USER], AssistantMessage("<think>\nhm\n</think>\n\nIt is a."))
    assert text_of(chat, ids) == "hm\n</think>\n\nIt is a.<|im_end|>"


def test_a_thought_where_the_prompt_says_that_there_is_none_is_refused():
    with pytest.raises(DataError, match="differently from its generation prompt"):
        encode_reply(chat_of("qwen3_6", **OFF), [USER], AssistantMessage("<think>\nhm\n</think>\n\nIt is a."))


STARTS = {
    "as prompted": ("a<think>\n", "a<think>\n\n</think>\n\nb", "\n</think>\n\nb"),
    "other white space": ("a<think>\n", "a<think></think>b", "</think>b"),
    "no opening tag": ("a<think>", "a</think>b", "</think>b"),
    "no empty thought": ("a<think>\n\n</think>\n\n", "ab", "b"),
    "another empty thought": ("a<think></think>", "a<think>\n\n</think>\n\nb", "b"),
    "the text of an answer that begins with white space": ("a<think></think>", "a  b", "  b"),
    "no thought where one is opened": ("a<think>\n", "ab", None),
    "a thought where there is none": ("a<think></think>", "a<think>hm</think>b", None),
    "another past": ("a<think>\n", "c<think></think>b", None),
    "no thoughts at all": ("a", "cb", None),
}


@pytest.mark.parametrize(("prompt", "whole", "answer"), STARTS.values(), ids=STARTS)
def test_where_an_answer_begins(prompt, whole, answer):
    start = reply_start(prompt, whole, "hermes")
    assert (start if start is None else whole[start:]) == answer


def test_tags_of_a_family_are_its_own():
    assert opened_reasoning("x<seed:think>\n", "seed_oss") == "<seed:think>\n"
    assert opened_reasoning("x<think>\n", "seed_oss") == ""
    assert opened_reasoning("x<think>\n", "unknown") == "<think>\n"
    assert reply_start("a<|channel>thought\n<channel|>", "ab", "gemma4") == 1


@pytest.mark.parametrize("told", [{"enable_thought": False}, {"tools": True}, {"tokenize": True}])
def test_what_a_template_does_not_read_is_refused(told):
    with pytest.raises(ModelError, match="does not read this variable"):
        chat_of("qwen3_6", template_kwargs=told)


def test_a_call_in_a_thought_that_the_prompt_opened_is_not_carried_out():
    chat = chat_of("qwen3_6")
    text = f"or {QWEN_CALL}?</think>\n\nno<|im_end|>"
    rollout = run_episode(chat, lambda rollout: chat.tokenizer(text, add_special_tokens=False)["input_ids"])
    assert "tool_calls" not in rollout.messages[0]
    assert rollout.messages[0]["content"].startswith("<think>\nor So.")
