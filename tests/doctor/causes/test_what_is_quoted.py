"""What causes quote: replies to calls, answers, rollbacks; and what holds the steps beside them."""

from dataclasses import replace

import pytest

from truing.doctor.causes import adapter_small, one_answer, replies_cut, rolled_back, tools_refused
from truing.doctor.causes.example import example_history, example_sample
from truing.envs.tools import ToolEpisode, ToolError, tool
from truing.types.message import AssistantMessage, ToolCall


@tool
def look(key: str) -> str:
    """The number of a key."""
    if key == "b":
        raise ToolError("429")
    return "7"


TURNS = {
    "tool calls are malformed": AssistantMessage(parse_errors=("Call 1 is malformed: not JSON",)),
    "tool calls are refused": AssistantMessage(calls=(ToolCall("look", {"record_id": "a"}),)),
    "tools answer with an error": AssistantMessage(calls=(ToolCall("look", {"key": "b"}),)),
}


def with_reply(turn):
    (reply,) = ToolEpisode([look]).reply(turn)
    rows = [example_sample(i, messages=(reply,)) for i in range(32)]
    return reply["content"], example_history({"tools/valid_share": 0.1}, samples=rows)


@pytest.mark.parametrize("title", TURNS)
def test_the_commonest_error_is_quoted_under_what_became_of_its_call(title):
    said, history = with_reply(TURNS[title])
    answer = tools_refused.CAUSE.answer(history)
    assert answer.title == title
    assert f"32 times: {said!r}" in answer.because


def test_a_call_of_an_unknown_tool_is_refused():
    _, history = with_reply(AssistantMessage(calls=(ToolCall("find", {"key": "a"}),)))
    assert tools_refused.CAUSE.answer(history).title == "tool calls are refused"


def test_a_policy_that_stops_calling_is_told():
    calls = {"tools/valid_share": 0.1, "tools/calls_mean": [1.0] * 20 + [0.02] * 4}
    assert "the policy stops calling" in tools_refused.CAUSE.answer(example_history(calls)).because
    steady = example_history(calls | {"tools/calls_mean": 1.0})
    assert "stops" not in tools_refused.CAUSE.answer(steady).because


def test_an_adapter_is_not_the_cause_where_its_scale_holds_the_steps():
    small = {"lora.rank": 1, "lora.alpha": 0.01}
    assert adapter_small.CAUSE.answer(example_history({"kl_all/k3": 1e-7}, small)).state == "cannot tell"


def test_an_answer_that_all_tasks_ask_for_is_no_fault():
    history = one_answer.CAUSE.found[0]()
    assert one_answer.CAUSE.answer(history).state == "found"
    for text, state in (("1", "ruled out"), ("2", "found")):
        right = {each.task_id: text for each in history.samples}
        known = replace(history, run=replace(history.facts, right=right))
        assert one_answer.CAUSE.answer(known).state == state


def test_rollouts_with_cut_replies_that_earn_as_much_exclude_it():
    cut, whole = {"role": "tool", "content": "." * 50, "lost_chars": 90}, {"role": "tool", "content": "."}
    rows = [example_sample(i, messages=(cut if i % 2 else whole,), reward=0.5) for i in range(32)]
    answer = replies_cut.CAUSE.answer(example_history(samples=rows))
    assert answer.state == "ruled out"
    assert "those with whole replies 0.5" in answer.because


def test_a_wider_guard_is_advised_where_it_takes_chance_for_a_fall():
    _, narrow, wide = (rolled_back.CAUSE.answer(make()) for make in rolled_back.CAUSE.found)
    assert [change.split("=")[0] for change in narrow.advice.changes] == ["guard.window", "guard.reward_drop"]
    assert [change.split("=")[0] for change in wide.advice.changes] == ["grpo.learning_rate"]
    assert "15 rollbacks, the last because the mean reward of 1 step fell" in narrow.because
