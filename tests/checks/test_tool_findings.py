"""Tools that are named in one place only, and wrong calls that nobody answers."""

import pytest
from shop import PRICES, Shop, price

from truing.envs.tools import ToolEpisode, tool
from truing.types.message import AssistantMessage, ToolCall

NAMES = "tool names are one set"
BAD = "bad calls are answered"
TASKS = len(PRICES)


@tool
def rebate(item: str) -> str:
    """What is taken off a price."""
    return "1"


PLANTED = {
    "the prompt shows a tool that the world lacks": {"tools": (price.spec, rebate.spec)},
    "the world has a tool that the prompt lacks": {"world": lambda task: ToolEpisode([price, rebate])},
    "the demonstration calls a tool that the prompt lacks": {
        "demonstration": (
            AssistantMessage(calls=(ToolCall("prices", {"item": "red cup"}),)),
            AssistantMessage("0"),
        )
    },
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_tool_that_one_side_lacks_is_found(report, what):
    findings = report(Shop(**PLANTED[what]))[NAMES].findings
    assert [each.what for each in findings] == [what] * TASKS


def test_the_nearest_tool_is_named(report):
    demonstration = PLANTED["the demonstration calls a tool that the prompt lacks"]
    finding = report(Shop(**demonstration))[NAMES].findings[0]
    assert (finding.got, finding.expected, finding.remedy) == ("'prices'", "price", "did you mean 'price'?")


class Bringing(ToolEpisode):
    """A world whose customer brings a tool along after the first turn."""

    def reply(self, said):
        if said.calls or "rebate" in self.tools:
            return super().reply(said)
        self.tools["rebate"] = rebate
        return [{"role": "user", "content": "Here is another function: rebate(item). What is taken off?"}]


def test_a_tool_that_comes_with_a_later_request_is_no_stranger(report):
    said = (
        AssistantMessage("0"),
        AssistantMessage(calls=(ToolCall("rebate", {"item": "red cup"}),)),
        AssistantMessage("1"),
    )
    told = report(Shop(demonstration=said, world=lambda task: Bringing([price])))
    assert told["attempts can be played and graded"].findings == ()
    assert told[NAMES].findings == ()


class Own:
    """A world that is no ToolEpisode; ``bad`` is what it does with a call that it cannot carry out."""

    def __init__(self, bad):
        self.inner, self.bad = ToolEpisode([price]), bad

    def reply(self, said):
        good = all(call.name == "price" and "item" in call.arguments for call in said.calls)
        return self.inner.reply(said) if good and not said.parse_errors else self.bad(said)

    def outcome(self):
        return {}


def crash(said):
    raise KeyError("truing_probe")


@pytest.mark.parametrize(
    ("bad", "got"), [(crash, "KeyError: 'truing_probe'"), (lambda said: [], "no message")]
)
def test_a_bad_call_that_is_not_answered_is_found(report, bad, got):
    findings = report(Shop(world=lambda task: Own(bad)))[BAD].findings
    assert [each.got for each in findings] == [
        got
    ] * 3  # an unknown tool, an unknown argument, no call at all


def test_a_world_of_one_turn_need_not_answer(report):
    """It judges the calls as they were written."""
    said = (AssistantMessage(calls=(ToolCall("price", {"item": "red cup"}),)),)
    silent = Shop(demonstration=said, world=lambda task: Silent())
    assert report(silent)[BAD].findings == ()
    crashing = Shop(demonstration=said, world=lambda task: Own(crash))
    assert len(report(crashing)[BAD].findings) == 3


class Silent(Own):
    """A world that is over after a turn."""

    def __init__(self):
        super().__init__(lambda said: [])

    def reply(self, said):
        return []


def test_registries_that_cannot_be_read_are_told(report):
    result = report(Shop(world=lambda task: Own(crash)))[NAMES]
    assert result.missing[0].startswith(f"registries: {TASKS} of {TASKS} tasks")
