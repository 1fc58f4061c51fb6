"""Faults of an environment, one planted for each check."""

import itertools
import re

import pytest
from shop import PRICES, Quiz, Shop, exact, price

from truing.envs.tools import ToolEpisode
from truing.types.message import AssistantMessage, ToolCall

TASKS = len(PRICES)


def finding_locations(report, name):
    """Return the locations of a check's findings, which must be complete."""
    findings = report[name].findings
    assert all(each.what and each.got and each.expected and each.remedy for each in findings)
    return [each.where for each in findings]


def always(rollout, task):
    return 1.0


def broken(rollout, task):
    raise KeyError("score")


def test_a_reward_that_fails_is_found(report):
    result = report(Quiz(broken))["rollouts can be played and graded"]
    assert len(result.findings) == 3 * TASKS
    assert "raised KeyError" in result.findings[0].what


def test_what_could_not_be_graded_is_not_called_clean(report):
    result = report(Quiz(broken))["the demonstration scores full"]
    assert (result.count, result.missing) == (0, ("rollouts: none ran and was graded",))


class Torn(ToolEpisode):
    """An episode whose outcome fails."""

    def outcome(self):
        raise OSError("no till")


def test_an_episode_that_fails_is_found(report):
    result = report(Shop(open_episode=lambda task: Torn([price])))["rollouts can be played and graded"]
    assert len(result.findings) == 3 * TASKS
    assert re.fullmatch(r"OSError: no till \(.*test_environment.py:\d+, in outcome\)", result.findings[0].got)


def test_a_demonstration_that_ends_too_early_is_found(report):
    turns = Shop().made["train"][0].demonstration[:1]
    result = report(Shop(demonstration=turns))["rollouts can be played and graded"]
    assert "ends before its episode does" in result.findings[0].what


def test_a_demonstration_that_a_limit_cuts_is_found(report):
    findings = report(Shop(), max_turns=1)["demonstrations fit"].findings
    (cut,) = [finding for finding in findings if "demonstrations; this is the first" in finding.what]
    assert cut.what.startswith(f"a limit truncates {TASKS} of {TASKS} demonstrations")
    assert cut.got == "ended by turns after 1 turns"


def test_a_demonstrated_call_that_the_environment_rejects_is_shown(report):
    turns = (AssistantMessage(calls=(ToolCall("price", {"itme": "cup"}),)), AssistantMessage("5"))
    result = report(Shop(lambda rollout, task: 0.0, demonstration=turns))["the demonstration scores full"]
    assert 'a call of it was answered "Error: wrong arguments for price' in result.findings[0].got
    assert result.findings[0].remedy == "fix the rejected call"


def test_a_poor_demonstration_is_found(report):
    half = report(Quiz(lambda rollout, task: exact(rollout, task) / 2))
    assert len(finding_locations(half, "the demonstration scores full")) == TASKS
    assert half["the demonstration scores full"].findings[0].got == "0.5 {'reward': 0.5}"


def test_full_is_the_sum_of_the_weights_above_0(report):
    env = Quiz(weight=2.0)
    env.rewards |= {"length": (lambda rollout, task: 0.0, -0.5), "told": (always, 0.0)}
    assert not finding_locations(report(env), "the demonstration scores full")


def test_tasks_without_a_demonstration_are_counted(report):
    result = report(Shop(demonstration=None))["the demonstration scores full"]
    assert result.missing == ("demonstrations: no task has one",)


def test_a_reward_of_any_size_is_measured_by_what_demonstrations_earn(report):
    results = report(Quiz(lambda rollout, task: 10 * exact(rollout, task) + 3))
    assert finding_locations(results, "the demonstration scores full") == []
    assert finding_locations(results, "saying nothing does not score full") == []
    assert finding_locations(results, "shuffled answers do not score full") == []


def test_a_reward_for_silence_is_found(report):
    assert len(finding_locations(report(Quiz(always)), "saying nothing does not score full")) == TASKS


def unanswered(rollout, task):
    return float(not rollout.text)


def test_an_empty_answer_that_smaller_parts_pay_like_a_demonstration_is_found(report):
    """The part with the largest weight tells both apart."""
    env = Quiz()
    env.rewards = {"exact": (exact, 1.0), "short": (unanswered, 0.6), "calm": (unanswered, 0.4)}
    (found,) = report(env)["saying nothing does not score full"].findings
    assert found.what == f"an empty answer earns as much as the demonstration, in {TASKS} of {TASKS} tasks"
    assert found.expected == "< 1, which the demonstration earns"
    env.rewards["calm"] = (unanswered, 0.3)
    assert report(env)["saying nothing does not score full"].findings == ()


def test_a_demonstration_that_ends_while_the_stop_is_banned_is_found(report):
    (found,) = report(Quiz(), min_new_tokens=15)["demonstrations fit"].findings
    assert "have a turn that is too short to be sampled" in found.what
    assert found.expected == "> 15: sampling.min_new_tokens"
    tokens = int(found.got.split()[0])
    assert report(Quiz(), min_new_tokens=tokens - 1)["demonstrations fit"].findings == ()


def test_tasks_that_silence_solves_by_the_data_are_counted(report):
    env = Quiz(always)
    env.idle = list(PRICES)[1:]
    result = report(env)
    assert finding_locations(result, "saying nothing does not score full") == list(PRICES)[:1]
    assert result["saying nothing does not score full"].notes[0].endswith(f"any action: {TASKS - 1}")


def test_a_reward_for_any_answer_is_found(report):
    results = report(Quiz(lambda rollout, task: float(rollout.text != "")))
    assert finding_locations(results, "shuffled answers do not score full") == ["quiz"]
    assert not finding_locations(results, "saying nothing does not score full")


def test_answers_are_shuffled_among_those_that_differ(report):
    env = Quiz(always)
    for split, tasks in env.made.items():
        env.made[split] = [
            task.__class__(**{**vars(task), "answer": "1", "demonstration": "1"}) for task in tasks
        ]
    result = report(env)["shuffled answers do not score full"]
    assert (result.count, result.findings) == (0, ())
    assert result.missing == ("families without two different answers that ran: quiz",)


def test_a_reward_that_changes_is_found(report):
    calls = itertools.count()
    results = report(Quiz(lambda rollout, task: 1 / (1 + next(calls))))
    assert len(finding_locations(results, "grading twice agrees")) == 3 * TASKS


@pytest.mark.parametrize("differs", ["answers", "outcome"])
def test_an_environment_that_changes_is_found(report, differs):
    opened = itertools.count()

    def open_episode(task):
        count = next(opened)
        return {
            "outcome": Drifting([price], lambda: {"count": count}),
            "answers": Drifting([price], count=count),
        }[differs]

    findings = report(Shop(open_episode=open_episode))["a task opens the same episode twice"].findings
    assert findings
    assert all(each.what.endswith(differs) for each in findings)
    assert all(len(each.got) < 80 for each in findings)  # what differs, not all messages


class Drifting(ToolEpisode):
    """An episode that shows how many were opened before it."""

    def __init__(self, tools, outcome=dict, count=""):
        super().__init__(tools, outcome)
        self.count = count

    def reply(self, turns):
        return [
            {**message, "content": f"{message['content']}{self.count}"} for message in super().reply(turns)
        ]


def test_prompts_that_leave_no_room_are_found(report):
    results = report(Quiz(), context=30, max_new_tokens=20)
    (finding,) = results["prompts fit the context"].findings
    assert finding.what.startswith(f"{TASKS} of {TASKS} prompts")
    longest = max(PRICES, key=len)
    assert len(finding.where) == len(longest)
    assert finding.expected.startswith("≤ 10: ")
    assert not finding_locations(results, "demonstrations fit")  # their one turn comes right after the prompt


def test_a_demonstrated_turn_longer_than_max_new_tokens_is_found(report):
    assert len(finding_locations(report(Shop(), max_new_tokens=5), "demonstrations fit")) == 1


def test_a_demonstration_longer_than_the_context_is_found(report):
    prompt = int(report(Shop())["prompts fit the context"].notes[0].split()[-2])
    results = report(Shop(), context=prompt + 128)
    assert not finding_locations(results, "prompts fit the context")
    (finding,) = results["demonstrations fit"].findings
    assert "no room for their last turn" in finding.what
    assert not finding_locations(results, "the demonstration scores full")
