"""The table of docs/templates.md, row by row, and what the page says of the supplied tool prompt.

A row whose template TRL does not bring is ``data``; templates written in such shapes stand in for them.
"""

import copy
import re
from dataclasses import replace

import pytest
import torch
from episodes import TASK, as_written, in_words, run_episode, stop_ids
from folders import ROOT
from published_templates import case, cases, template_of

from truing.chat import add_turn, encode_reply, observe, start_dialogue
from truing.chat.render import text_of
from truing.chat.template_features import native_format
from truing.envs.tools import ToolEpisode
from truing.errors import DataError, ModelError
from truing.types.message import AssistantMessage, ToolCall
from truing.types.token import Origin

PAGE = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
PUBLISHED = re.findall(r"^\|[^|]+\| `(.+?)` \| (\w+) \| (\w+)(?: at `(.+?)`)? \|$", PAGE, re.MULTILINE)
WRITTEN = [
    ("written/minimind", "hermes", "extends", ""),
    ("written/smollm2", "supplied", "extends", ""),
    ("written/mistral_nemo", "mistral", "extends", ""),
    ("written/qwen3_5", "qwen3_coder", "extends", ""),
    ("written/glm_4_7", "glm47", "restarts", "<think>"),
    ("written/unread", "unknown", "extends", ""),
]
ROWS = [case(*row) for row in (*WRITTEN, *PUBLISHED)]
CALL = AssistantMessage(calls=(ToolCall("look", {"word": "moon", "n": 1}),))


def test_the_table_is_read():
    table = [line for line in PAGE.splitlines() if line.count("|") == 5]
    assert len(PUBLISHED) == len(table) - 2


@pytest.mark.parametrize(("name", "calls", "own", "at"), ROWS)
def test_a_row_of_the_table(speak, name, calls, own, at):
    if calls == "unknown":
        with pytest.raises(ModelError, match="not known how this model's template writes"):
            speak(name).render_text(TASK.messages, TASK.tools)
        assert speak(name).render_text(TASK.messages)  # without tools nothing has to be known
        chat = speak(name, tool_prompt="hermes")
    else:
        chat = speak(name)
        assert chat.tool_format == ("hermes" if calls == "supplied" else calls)
        assert chat.tool_prompt == ("hermes" if calls == "supplied" else None)
    assert native_format(chat.tokenizer, chat.stop_ids) == (None if calls == "supplied" else calls)
    if own == "refuses":
        with pytest.raises(DataError, match=at):
            run_episode(chat, as_written(chat, CALL), as_written(chat, AssistantMessage("bye")))
        return
    restarts = (
        run_episode(chat, as_written(chat, CALL), as_written(chat, AssistantMessage("bye")))
        .turns[1]
        .restart_reason
    )
    assert ("restarts" if restarts else "extends") == own
    assert at in restarts


def test_a_supplied_prompt_writes_tools_calls_and_answers_as_text(speak):
    chat = speak("written/smollm2")
    rollout = run_episode(
        chat, as_written(chat, CALL), as_written(chat, AssistantMessage("bye")), reply="white"
    )
    whole = chat.render_text([*TASK.messages, *rollout.messages], TASK.tools)
    assert PAGE.count("```text") == 1
    shown = PAGE.partition("```text\n")[2].partition("\n```")[0]
    assert shown in whole
    assert whole.index(TASK.tools[0].description) < whole.index("<|im_start|>user") < whole.index(shown)


@pytest.mark.parametrize(
    ("style", "shown"), [("hermes", '"name": "look"'), ("brief", "look(word, n): Look a word up.")]
)
def test_a_supplied_prompt_shows_schemas_or_signatures(speak, style, shown):
    chat = speak("written/smollm2", tool_prompt=style)
    assert shown in chat.render_text(TASK.messages, TASK.tools).partition("<|im_start|>user")[0]


@pytest.mark.parametrize("name", cases("trl/gemma", "written/smollm2", "smollm2"))
def test_what_a_system_message_says_is_always_shown(speak, name):
    chat = speak(name)
    asked = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."})
    text = chat.render_text(asked)
    assert "Be brief." in text
    assert ("Be brief.\n\nHi." in text) is (name == "trl/gemma") is not chat.system_role


@pytest.mark.parametrize(
    "name", cases("written/mistral_nemo", "trl/gptoss", "trl/qwen2_5", "trl/llama3", "lenml/mistral_nemo")
)
def test_malformed_calls_in_a_row_are_answered(speak, name):
    chat = speak(name)
    message = AssistantMessage("a call, badly written", parse_errors=("Call 1 is malformed.", "Call 2 too."))
    dialogue, _ = start_dialogue(chat, TASK)
    for _ in range(3):
        drawn = encode_reply(chat, dialogue.messages, message, dialogue.tools)
        dialogue = add_turn(chat, dialogue, torch.tensor([]).long(), drawn, message)
        dialogue, context = observe(chat, dialogue, ToolEpisode([]).reply(message))
        text = text_of(chat, context.token_ids[context.origin == Origin.TOOL])
        assert "Error: Call 1 is malformed." in text
        assert "Error: Call 2 too." in text


def test_a_harmony_turn_without_tools_is_read_as_its_final_message(speak):
    chat, task = speak("trl/gptoss"), replace(TASK, tools=())
    drawn = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>ok<|return|>"
    rollout = run_episode(chat, in_words(chat, drawn), in_words(chat, drawn), task=task)
    assert [m["content"] for m in rollout.messages] == ["ok", "moon", "ok"]


def test_a_template_that_drops_what_tools_answer_gets_a_supplied_prompt(minimind):
    own = copy.copy(minimind)
    own.chat_template = template_of("trl/qwen2_5").replace('message.role == "tool"', "false")
    assert native_format(own, stop_ids(own)) is None
