"""Which recorded rollouts of programs become demonstrations, and in which words."""

import json
from dataclasses import replace
from types import SimpleNamespace

from tests.samples import demo, sample

from truing.analysis.demonstrations import best_answers, highest_reward
from truing.envs.program.config import ProgramConfig
from truing.envs.program.demonstrated_rows import demonstrated_rows
from truing.types.step_table import StepNumbers, table_of_samples

USER = {"role": "user", "content": "task"}


def says(text, *calls):
    """A message of the policy; ``calls``: ids."""
    if not calls:
        return {"role": "assistant", "content": text}
    functions = [{"id": id, "type": "function", "function": {"name": "f", "arguments": {}}} for id in calls]
    return {"role": "assistant", "content": text, "tool_calls": functions}


def rollout(name, reward, *said, row=sample):
    """A rollout whose calls have one conversation."""
    made = row([1], [5] * len(said), name=name)
    (span,) = made.turns
    turns = [replace(span, start=i, end=i + 1, call=i) for i in range(1, len(said) + 1)]
    return replace(made, task_id="t", reward=reward, turns=tuple(turns), messages=(USER, *said))


def recorded(*rollouts):
    """A run of one step."""
    table = table_of_samples(StepNumbers("grpo", 0, {}), rollouts)
    return SimpleNamespace(steps=lambda: [0], table=lambda line: table)


def texts(answers):
    return [message["content"] for message in answers.get("t", ())]


def test_the_best_graded_rollout_demonstrates_and_a_demonstration_does_not():
    nan = float("nan")
    shown = rollout("d", nan, says("shown"), row=demo)
    run = recorded(shown, rollout("a", 0.5, says("half")), rollout("b", 1.0, says("one")))
    assert texts(best_answers(run, 0.1, ())) == ["one"]
    assert texts(best_answers(recorded(shown), -1, ())) == []
    assert texts(best_answers(recorded(rollout("a", 0.2, says("low")), shown), 0.1, ())) == ["low"]
    assert highest_reward(run) == 1.0
    assert highest_reward(recorded(shown)) is None


def test_bytes_that_are_no_text_and_special_tokens_demonstrate_nothing():
    run = recorded(
        rollout("a", 1.0, says("torn \ufffd")),
        rollout("b", 0.9, says("<|end|>")),
        rollout("c", 0.5, says("fine")),
    )
    assert texts(best_answers(run, 0, ["<|end|>"])) == ["fine"]


def test_each_call_of_a_row_has_its_own_id():
    said = says("", "call00000", "call00001"), says("", "call00000"), says("x", "mine")
    run = recorded(rollout("a", 1.0, *said))
    said = best_answers(run, 0, ())["t"]
    ids = [call["id"] for message in said for call in message["tool_calls"]]
    assert ids == ["call00000", "call00001", "call00002", "mine"]


def exported(tmp_path, row, **keys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row))
    config = ProgramConfig(data=str(rows), command=("true",), **keys)
    (written,) = demonstrated_rows(config, {"t": [says("new")]})
    return written


def test_the_demonstration_of_a_row_is_replaced_and_its_prompt_stays(tmp_path):
    row = {"id": "t", "messages": [USER, says("old"), USER, says("older")], "level": 2}
    expected = {"id": "t", "messages": [USER], "level": 2, "completion": [says("new")]}
    assert exported(tmp_path, row, system="be brief") == expected
    again = {"name": "t", "prompt": "task", "reply": "old"}
    keys = {"id_column": "name", "completion_column": "reply"}
    assert exported(tmp_path, again, **keys) == again | {"reply": [says("new")]}
    earlier = {"id": "t", "prompt": [USER, says("asked"), USER], "completion": "old"}
    assert exported(tmp_path, earlier) == earlier | {"completion": [says("new")]}
