"""Patterns that come from data end, whatever they are."""

import time

import pytest

from truing.envs.adapters.schema import validated_schema
from truing.envs.dataset.config import DatasetConfig, RewardConfig
from truing.envs.dataset.named_rewards import make_rewards
from truing.envs.tools import Tool, ToolError
from truing.errors import RewardError
from truing.rewards import grade
from truing.types.message import ToolSpec
from truing.types.rollout import Rollout, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status
from truing.utils import patterns
from truing.utils.patterns import Pattern, PatternError

CATASTROPHIC, TEXT = "(a|a)+$", "a" * 60 + "b"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)


def test_a_search_has_a_time_limit():
    started = time.monotonic()
    for search in (Pattern(CATASTROPHIC).matches, Pattern(CATASTROPHIC).find_all):
        with pytest.raises(TimeoutError):
            search(TEXT)
    assert time.monotonic() - started < 1
    assert Pattern(CATASTROPHIC).matches("ba")


@pytest.mark.parametrize("pattern", ["*a", "(", "(" * 3000, "a{99999999999999999999}", "[z-a]"])
def test_what_is_no_pattern_is_one_error(pattern):
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "pattern": CATASTROPHIC}}},
        {"patternProperties": {CATASTROPHIC: {}}, "additionalProperties": False},
        {"patternProperties": {CATASTROPHIC: {}}, "unevaluatedProperties": False, "required": ["no"]},
    ],
)
def test_a_schema_freezes_no_call(schema):
    schema = validated_schema({"type": "object", **schema}, "the MCP tool t")
    tool = Tool(ToolSpec("t", "", schema), lambda **_: "ran")
    started = time.monotonic()
    with pytest.raises(ToolError, match=r"takes too long|unexpected|required"):
        tool.run({"a": TEXT, TEXT: 1})
    assert time.monotonic() - started < 1


def test_properties_of_a_schema_are_checked_as_before():
    schema = {
        "properties": {"a": {"pattern": "^b"}},
        "patternProperties": {"^n": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    tool = Tool(ToolSpec("t", "", schema), lambda **_: "ran")
    assert tool.run({"a": "b", "n1": 2, "other": "c"}) == "ran"
    with pytest.raises(
        ToolError, match=r"(?s)'c' does not match '\^b'.*'x' is not of type.*3 is not of type"
    ):
        tool.run({"a": "c", "n1": "x", "other": 3})


def test_a_reward_by_a_pattern_freezes_no_run():
    config = DatasetConfig.model_construct(rewards={"r": RewardConfig(kind="regex", pattern=CATASTROPHIC)})
    task = Task("t", "family", ({"role": "user", "content": "?"},), "b")
    rollout = Rollout("r", "g", task, (), TEXT, Status.DONE, SamplingParams())
    with pytest.raises(RewardError, match=r"reward 'r'.*TimeoutError"):
        grade(rollout, make_rewards(config))
