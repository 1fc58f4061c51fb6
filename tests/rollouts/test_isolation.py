"""Environments, tools and rewards that keep or change shared objects change nothing else."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from truing.config import EpisodeConfig
from truing.envs import checked_tasks
from truing.envs.tools import ToolEpisode, tool
from truing.envs.wrappers import with_changed_tasks, with_rewards, with_tools
from truing.errors import DataError
from truing.rewards import grade
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import DemonstrationTurns
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

LOOK = ToolSpec("look", "Look words up.", {"type": "object", "properties": {"words": {"type": "array"}}})


def asking(name="t", split="train"):
    """A task with something to change in each of its parts."""
    return Task(
        name,
        "f",
        ({"role": "user", "content": f"find {split}", "seen": ["page"]},),
        answer={"wanted": ["moon", "sun"]},
        demonstration=(
            AssistantMessage(calls=(ToolCall("look", {"words": ["sun", "moon"]}),)),
            AssistantMessage(
                calls=(ToolCall("look", {"words": ["sun"]}), ToolCall("look", {"words": [["deep"]]}))
            ),
            AssistantMessage("done"),
        ),
        tools=(LOOK,),
    )


class Words(list):
    """A list type of the environment."""


class Hostile:
    """An episode that keeps every object it sees, and changes all of them at each turn and when asked."""

    def __init__(self, task):
        self.task, self.kept, self.state, self.given = task, [], {"words": Words()}, []

    def spoil(self):
        for words in self.kept:
            words.append("spoilt")
            if words and isinstance(words[0], list):
                words[0].append("spoilt")
        self.task.answer["wanted"].append("spoilt")
        self.task.messages[0]["seen"].append("spoilt")
        self.task.tools[0].parameters["properties"]["spoilt"] = {}
        self.task.demonstration[0].calls[0].arguments["words"].append("spoilt")
        for message in self.given:
            message["content"] = "spoilt"

    def reply(self, message):
        self.kept += [call.arguments["words"] for call in message.calls]
        self.state["words"] += [str(call.arguments["words"]) for call in message.calls]
        self.given += [{"role": "tool", "name": "look", "content": str(words)} for words in self.kept[-1:]]
        self.spoil()
        if message.calls:
            self.given[-1]["content"] = f"{len(self.given)} seen"
        return self.given[-1:] if message.calls else []

    def outcome(self):
        self.spoil()
        return self.state


@dataclass
class HostileEnv:
    """Opens hostile episodes, and keeps them and its tasks."""

    rewards: dict = field(default_factory=dict)
    notes: tuple = ()
    opened: list = field(default_factory=list)

    def __post_init__(self):
        self.own = {"train": [asking()], "eval": [asking("e", "eval")]}

    def tasks(self, split):
        return self.own[split]

    def open(self, task):
        self.opened.append(Hostile(task))
        return self.opened[-1]


def run_demonstrations(chat, env, tasks, group_size=2, reward=None):
    sampling_params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=8)
    context = EpisodeContext(chat, env, sampling_params, EpisodeConfig(), context_length=2048)
    return collect(
        tasks,
        group_size=group_size,
        context=context,
        turn_source=DemonstrationTurns(chat),
        grade=reward,
        key=("test",),
    )


def call_arguments(rollout):
    """Return the recorded arguments of each call."""
    calls = [call for message in rollout.messages for call in message.get("tool_calls", ())]
    return [call["function"]["arguments"]["words"] for call in calls]


@pytest.mark.parametrize(
    "wrap",
    [lambda env: env, lambda env: with_rewards(env, {}), lambda env: with_changed_tasks(env, deepcopy)],
)
def test_a_hostile_environment_changes_no_task_no_demonstration_and_no_message(chat, wrap):
    hostile = HostileEnv()
    env = wrap(hostile)
    tasks = list(checked_tasks(env)["train"])
    ids = []
    for _ in range(2):  # before the second run, the environment has spoilt all that it keeps of the first
        (group,) = run_demonstrations(chat, env, tasks)
        for rollout in group.rollouts:
            assert rollout.status is Status.DONE, rollout.error
            assert call_arguments(rollout) == [["sun", "moon"], ["sun"], [["deep"]]]
            answers = [message["content"] for message in rollout.messages if message["role"] == "tool"]
            assert answers == ["1 seen", "2 seen"]
            assert rollout.outcome == {"words": ["['sun', 'moon']", "['sun']", "[['deep']]"]}
            ids.append([turn.token_ids.tolist() for turn in rollout.turns])
        for episode in hostile.opened:
            episode.spoil()
            episode.state["words"].append("later")
        assert group.rollouts[0].outcome == {"words": ["['sun', 'moon']", "['sun']", "[['deep']]"]}
        for own in hostile.own["train"]:
            own.answer["wanted"].append("spoilt")
            own.demonstration[0].calls[0].arguments["words"].append("spoilt")
    assert tasks == [asking()]
    assert len(ids) == 4
    assert ids == ids[:1] * 4


def test_rollouts_of_a_group_open_the_task_as_it_is_and_not_as_another_left_it(chat):
    env, seen = HostileEnv(), []

    def open_task(task):
        seen.append(deepcopy(task))
        task.answer["wanted"].clear()
        return Hostile(deepcopy(asking()))

    env.open = open_task
    run_demonstrations(chat, env, [asking()], group_size=3)
    assert seen == [asking()] * 3


def test_a_tool_that_changes_its_arguments_and_its_default_changes_no_other_call(chat):
    @tool
    def look(words: list, before: list = []) -> list:  # noqa: B006 — the trap that is asked about
        """Look words up."""
        before.append("seen")
        words.append(before)
        return words

    one_turn = SimpleNamespace(rewards={}, notes=(), tasks=lambda split: [asking(split, split)])
    env = with_tools(one_turn, [look])
    (group,) = run_demonstrations(chat, env, [asking()])
    for rollout in group.rollouts:
        assert call_arguments(rollout) == [["sun", "moon"], ["sun"], [["deep"]]]
        answers = [message["content"] for message in rollout.messages if message["role"] == "tool"]
        assert answers == ['["sun", "moon", ["seen"]]', '["sun", ["seen"]]', '[["deep"], ["seen"]]']


def test_a_reward_that_sorts_in_place_is_seen_by_no_other_reward_rollout_or_record(chat):
    def greedy(rollout, task):
        assert rollout.task is task
        score = float(task.answer["wanted"] == ["moon", "sun"] and rollout.outcome["words"][0] != "gone")
        task.answer["wanted"].reverse()
        rollout.outcome["words"][:] = ["gone"]
        rollout.messages[0]["tool_calls"][0]["function"]["arguments"]["words"].sort()
        rollout.turns[0].token_ids.zero_()
        rollout.turns[0].sampler_logprob.zero_()
        task.tools[0].parameters["properties"].clear()
        return score

    rewards = {"first": (greedy, 1.0), "second": (greedy, 1.0)}
    tasks = [asking()]
    (group,) = run_demonstrations(chat, HostileEnv(), tasks, reward=lambda rollout: grade(rollout, rewards))
    (untouched,) = run_demonstrations(chat, HostileEnv(), [asking()])
    for rollout, other in zip(group.rollouts, untouched.rollouts, strict=True):
        assert rollout.reward_parts == {"first": 1.0, "second": 1.0}
        assert rollout.outcome == other.outcome
        assert rollout.messages == other.messages
        assert rollout.turns[0].token_ids.equal(other.turns[0].token_ids)
        assert rollout.turns[0].sampler_logprob.isnan().all()
    assert tasks == [asking()]


def test_a_task_that_cannot_be_copied_is_refused_by_name():
    env = HostileEnv()
    env.own["train"] = [replace(asking(), answer=(word for word in "ab"))]
    with pytest.raises(DataError, match=r"cannot be copied[\s\S]*generator"):
        checked_tasks(env)


def test_replies_hold_copies_of_the_tools_own_lists(chat):
    held = ["first"]

    @tool
    def look(words: list) -> list:
        """Look words up."""
        held.append("more")
        return held

    env = HostileEnv()
    env.open = lambda task: ToolEpisode([look], lambda: {"held": held})
    (group,) = run_demonstrations(chat, env, [asking()], group_size=1)
    outcome = group.rollouts[0].outcome
    held.clear()
    assert outcome == {"held": ["first", "more", "more", "more"]}
    answers = [m["content"] for m in group.rollouts[0].messages if m["role"] == "tool"]
    assert answers[0] == '["first", "more"]'
