"""Tools that only one side has, and wrong calls without an answer."""

import pytest
from shop import PRICES, Shop, price

from truing.envs.tools import Tool, ToolEpisode, ToolError, tool
from truing.types.message import AssistantMessage, ToolCall

NAMES = "tool names are one set"
BAD = "bad calls are answered"
TASKS = len(PRICES)


@tool
def rebate(item: str) -> str:
    """What is taken off a price."""
    return "1"


PLANTED = {
    "the prompt shows a tool that the environment lacks": {"tools": (price.spec, rebate.spec)},
    "the environment has a tool that the prompt lacks": {
        "open_episode": lambda task: ToolEpisode([price, rebate])
    },
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
    """An episode whose user introduces a tool after the first turn."""

    def reply(self, turn):
        if turn.calls or "rebate" in self.tools:
            return super().reply(turn)
        self.tools["rebate"] = rebate
        return [{"role": "user", "content": "Here is another function: rebate(item). What is taken off?"}]


def test_a_tool_that_a_later_message_introduces_is_known(report):
    turn = (
        AssistantMessage("0"),
        AssistantMessage(calls=(ToolCall("rebate", {"item": "red cup"}),)),
        AssistantMessage("1"),
    )
    results = report(Shop(demonstration=turn, open_episode=lambda task: Bringing([price])))
    assert results["rollouts can be played and graded"].findings == ()
    assert results[NAMES].findings == ()


class Own:
    """An episode that is no ToolEpisode; ``bad`` answers its invalid calls."""

    def __init__(self, bad):
        self.inner, self.bad = ToolEpisode([price]), bad

    def reply(self, turn):
        good = all(call.name == "price" and "item" in call.arguments for call in turn.calls)
        return self.inner.reply(turn) if good and not turn.parse_errors else self.bad(turn)

    def outcome(self):
        return {}


def crash(turn):
    raise KeyError("truing_probe")


@pytest.mark.parametrize(
    ("bad", "got"), [(crash, "KeyError: 'truing_probe'"), (lambda turn: [], "no message")]
)
def test_a_bad_call_that_is_not_answered_is_found(report, bad, got):
    findings = report(Shop(open_episode=lambda task: Own(bad)))[BAD].findings
    assert [each.got for each in findings] == [
        got
    ] * 3  # an unknown tool, an unknown argument, no call at all


def test_an_episode_of_one_turn_need_not_answer(report):
    """It grades the calls."""
    turn = (AssistantMessage(calls=(ToolCall("price", {"item": "red cup"}),)),)
    silent = Shop(demonstration=turn, open_episode=lambda task: Silent())
    assert report(silent)[BAD].findings == ()
    crashing = Shop(demonstration=turn, open_episode=lambda task: Own(crash))
    assert len(report(crashing)[BAD].findings) == 3


class Silent(Own):
    """An episode that ends after one turn."""

    def __init__(self):
        super().__init__(lambda turn: [])

    def reply(self, turn):
        return []


def test_unreadable_registries_are_counted(report):
    result = report(Shop(open_episode=lambda task: Own(crash)))[NAMES]
    assert result.missing[0].startswith(f"registries: {TASKS} of {TASKS} tasks")


@tool
def limited(item: str) -> str:
    """What something costs."""
    raise ToolError("429")


LIMITED = Tool(price.spec, limited.function, limited.arguments_model)
FAILS = "every call of the demonstration is answered with an error, in 6 of 6 demonstrations with calls"


def test_calls_of_demonstrations_that_all_fail_are_found(report):
    result = report(Shop(open_episode=lambda task: ToolEpisode([LIMITED])))
    (finding,) = result["rollouts can be played and graded"].findings
    assert finding.what.startswith(FAILS)
    assert finding.got == "'Error: 429'"


def test_a_demonstration_may_go_on_after_an_error(report):
    calls = [AssistantMessage(calls=(ToolCall("price", {"item": "red cup"}),))]
    wrong = AssistantMessage(calls=(ToolCall("price", {"items": "red cup"}),))
    result = report(Shop(demonstration=(wrong, *calls, AssistantMessage("0"))))
    assert not result["rollouts can be played and graded"].findings
