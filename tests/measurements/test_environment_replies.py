"""Replies in rollouts beside those of their episodes, and ids before turns beside the engine's."""

from types import SimpleNamespace

import pytest
import torch

from truing.doctor.rules import tok001, tol002
from truing.measurements.environment_replies import engine_prompt_fact, reply_fact
from truing.rollouts.workers.calls import EnvCall, EpisodeTable
from truing.types.message import AssistantMessage, hash_of_message, hash_of_outcome
from truing.types.rollout import hash_of_ids
from truing.types.status import EndedBy, Status

CHARS = 8


def message(content, **fields):
    return {"role": "tool", "name": "read", "tool_call_id": "call00000", "content": content} | fields


def rollout(read, given, status=Status.DONE, outcome=None):
    """Return a rollout whose episode ended in the state {"files": 3}, and which is graded by ``outcome``."""
    own = {"files": 3}
    hashes = (*(hash_of_message(each, CHARS) for each in given), hash_of_outcome(own))
    return SimpleNamespace(
        received=list(read),
        messages=[*read, {"role": "assistant", "content": ""}],
        ended_by=EndedBy.ENVIRONMENT,
        reply_hashes=hashes,
        status=status,
        outcome=outcome or own,
        sample_messages=(),
        task=SimpleNamespace(task_id=f"t{len(read)}{len(given)}"),
        turns=[SimpleNamespace(token_ids=torch.tensor(turn)) for turn in ([1, 2], [len(given)])],
    )


def test_own_replies_have_no_difference_also_if_the_limit_cuts_them():
    long, cut = message("12345678 and more"), message("12345678\n[9 characters more were cut]", lost_chars=9)
    rollouts = {"a": rollout([message("one"), cut], [message("one"), long]), "b": rollout([], [])}
    assert reply_fact(rollouts, CHARS) == {"checked": 2, "other": 0, "outcomes": 2}


def test_a_reply_that_says_nothing_of_what_it_lost_is_another_one():
    cut = message("12345678")
    assert reply_fact({"a": rollout([cut], [message("12345678 and more")])}, CHARS)["other"] == 1


def test_a_rollout_whose_last_turn_has_a_reply_has_not_ended():
    one = message("one")
    gone_on = rollout([one], [one])
    gone_on.messages.pop()
    fact = reply_fact({"a": rollout([one], [one]), "b": gone_on}, CHARS)
    assert (fact["unended"], fact["unended_of"]) == (1, "b")


def test_the_reply_of_another_rollout_is_told_with_its_own():
    one, two = message("one"), message("two")
    rollouts = {"a": rollout([one], [one]), "b": rollout([one], [two]), "c": rollout([two], [])}
    assert reply_fact(rollouts, CHARS) == {
        "checked": 3,
        "other": 2,
        "outcomes": 3,
        "rollout": "b",
        "reply": 0,
        "got": "one",
        "given_to": "a",
        "unlike": 1,
        "unlike_of": ("a", "b"),
    }


def test_episodes_of_a_task_with_the_same_turns_answer_alike():
    one, two = message("one"), message("two")
    rollouts = {"a": rollout([one], [one]), "b": rollout([one], [one]), "c": rollout([two], [two])}
    assert (reply_fact(rollouts, CHARS)["unlike"], reply_fact(rollouts, CHARS)["unlike_of"]) == (
        1,
        ("a", "c"),
    )
    rollouts["c"].turns[1].token_ids = torch.tensor([9])  # it asked something else
    assert "unlike" not in reply_fact(rollouts, CHARS)


def test_the_final_state_of_another_episode_is_told():
    rollouts = {"a": rollout([], []), "b": rollout([], [], outcome={"files": 2})}
    assert reply_fact(rollouts, CHARS) == {
        "checked": 0,
        "other": 0,
        "outcomes": 2,
        "other_outcomes": 1,
        "outcome_of": "b",
    }
    (claim,) = tol002.RULE.judge(tol002.outcomes_exchanged())
    assert claim.what == "8 rollouts are judged by another final state than that of the rollout's own episode"


@pytest.mark.parametrize(
    ("read", "given"),
    [
        ([message("one")], []),
        ([], [message("one")]),
        ([message("one", tool_call_id="call00001")], [message("one")]),
        ([message("one"), message("two")], [message("two"), message("one")]),
    ],
)
def test_replies_that_are_missing_or_at_another_place_differ(read, given):
    assert reply_fact({"a": rollout(read, given)}, CHARS)["other"] >= 1


def test_a_rollout_that_failed_is_left_out():
    failed = rollout([], [message("one")], Status.ERROR)
    assert reply_fact({"a": failed}, CHARS) == {"checked": 0, "other": 0}


def test_the_hashes_are_of_what_an_episode_replied():
    class Env:
        rewards, notes = {}, ()

        def tasks(self, split):
            return ()

        def open(self, task):
            return SimpleNamespace(reply=lambda turn: [message("yes")], outcome=lambda: {"right": 1})

    table = EpisodeTable(Env())
    for episode in (1, 2):
        table.run(EnvCall("open", episode, SimpleNamespace(task_id="t")))
    (reply,) = table.run(EnvCall("reply", 1, AssistantMessage("?")))
    reply["content"] = "no"  # what a rollout does with its reply changes no hash
    assert table.run(EnvCall("outcome", 1, CHARS)) == (
        {"right": 1},
        [hash_of_message(message("yes"), CHARS), hash_of_outcome({"right": 1})],
    )
    assert table.run(EnvCall("outcome", 2, CHARS)) == ({"right": 1}, [hash_of_outcome({"right": 1})])


@pytest.mark.parametrize(("given", "other"), [([1, 2, 3], 0), ([1, 2], 1), ([2, 2, 3], 1)])
def test_the_ids_before_a_turn_are_those_that_the_engine_read(given, other):
    sample = SimpleNamespace(
        sample_id="a", token_ids=torch.tensor([1, 2, 3, 4]), turns=[SimpleNamespace(start=3)]
    )
    turn = SimpleNamespace(prompt_hash=hash_of_ids(torch.tensor(given)), restart_reason="")
    rollouts = {"a": SimpleNamespace(rollout_id="a", turns=[turn])}
    fact = engine_prompt_fact(rollouts, {"a": sample})
    assert (fact["turns"], fact["other"]) == (1, other)
    assert fact.get("position") == (3 if other else None)


def test_turns_that_no_engine_sampled_are_not_compared():
    sample = SimpleNamespace(sample_id="a", token_ids=torch.arange(4), turns=[SimpleNamespace(start=3)])
    rollouts = {
        "a": SimpleNamespace(rollout_id="a", turns=[SimpleNamespace(prompt_hash="", restart_reason="")])
    }
    assert engine_prompt_fact(rollouts, {"a": sample})["turns"] == 0


def test_both_are_claimed():
    (reply,) = tol002.judge(tol002.example())
    assert reply.got == "'3 files' as reply 1 of r1, which the episode of r0 gave"
    (prompt,) = tok001.judge(tok001.other_prompt())
    assert prompt.what == "the engine read other ids before 1 of 8 turns than are trained"
