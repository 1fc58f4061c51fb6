import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_musique import all_tasks, hotpot_row, musique_row

from recipes.musique.bm25 import Bm25Index, Passage
from truing.envs import checked_tasks, make_env
from truing.envs.base import MultiTurnEnv
from truing.errors import RecipeError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

FLOWS = "It flows past the old bridge. " * 20

PASSAGES = [
    Passage("Rome", "Rome is the capital of Italy, on the river Tiber."),
    Passage("Paris", "Paris is the capital of France, on the river Seine."),
    Passage("Seine", "The Seine flows to the sea."),
    Passage("Twin", "A twin of the other."),
    Passage("Twin", "A twin of the other!"),
]
COLLECTION = Bm25Index(PASSAGES)


@pytest.fixture
def env(tmp_path):
    """The environment in search mode over rows; each has paragraphs of its own."""

    def make(rows, **keys):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return make_env("musique", {"data": str(path), "mode": "search"} | keys)

    return make


def row(number, **changes):
    paragraphs = [
        ("Aside", f"Nothing of use for {number}.", False),
        (f"Person {number}", f"Person {number} was born in City {number}.", True),
        (f"River {number}", FLOWS, True),
    ]
    return musique_row(
        number,
        paragraphs=[
            {"title": title, "paragraph_text": text, "is_supporting": supporting}
            for title, text, supporting in paragraphs
        ],
        **changes,
    )


def call(query):
    return AssistantMessage(calls=(ToolCall("search", {"query": query}),))


def run_episode(env, task, turns):
    """Say the turns in an episode of its own, and grade."""
    episode, messages = env.open(task), []
    for said in turns:
        replies = episode.reply(said)
        messages += [said.to_dict(), *replies]
    assert not replies, "the last turn ends the episode"
    rollout = Rollout(
        "r",
        "g",
        task,
        (),
        turns[-1].content,
        Status.DONE,
        SamplingParams(),
        messages=tuple(messages),
        outcome=episode.outcome(),
    )
    return rollout, grade(rollout, env.rewards)[1]


def test_the_best_passage_is_first_and_what_shares_no_word_is_left_out():
    result = COLLECTION.search("capital on the Seine", 5)
    assert [passage.title for passage in result] == ["Paris", "Seine", "Rome"]
    assert [passage.title for passage in COLLECTION.search("capital on the Seine", 1)] == ["Paris"]


@pytest.mark.parametrize("query", ["", "the of a", "xyzzy", "?!", "\x00"])
def test_a_query_without_known_words_finds_nothing(query):
    assert COLLECTION.search(query, 3) == []


def test_equals_keep_their_order_and_doubles_are_one():
    passages = [Passage("T", f"{'very same' if i % 3 else 'other'} words, number {i}") for i in range(1000)]
    equals = [passage for i, passage in enumerate(passages) if i % 3]
    collection = Bm25Index([*passages, *passages])
    assert collection.passages == tuple(passages)
    assert collection.search("very same", 500) == equals[:500]


def test_a_word_said_often_counts_once():
    long = "Seine " * 50_000 + "capital Italy"
    assert COLLECTION.search(long, 3) == COLLECTION.search("Seine capital Italy", 3)


def test_a_cut_says_how_much():
    assert Passage("T", "abcdef").truncated(4) == "T: abcd [2 characters cut]"
    assert Passage("T", "abcdef").truncated(6) == "T: abcdef"


def test_keys_tell_passages_apart_whatever_else_there_is():
    assert len({passage.key for passage in PASSAGES}) == len(PASSAGES)
    assert PASSAGES[0].key == Passage(PASSAGES[0].title, PASSAGES[0].text).key
    assert PASSAGES[0].key.startswith("Rome#")


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet=string.printable + "éß漢", max_size=40))
def test_any_query_gives_the_same_passages_every_time(query):
    result = COLLECTION.search(query, 2)
    assert result == COLLECTION.search(query, 2)
    assert len(result) <= 2


def test_a_task_shows_the_question_and_the_tool_alone(env):
    environment = env([row(1), row(2)], system="")
    assert isinstance(environment, MultiTurnEnv)
    task = all_tasks(environment)["musique/2hop__1"]
    assert task.messages == ({"role": "user", "content": "Question: Where was person 1 born?\n\nAnswer:"},)
    (tool,) = task.tools
    assert tool.name == "search"
    assert tool.parameters["required"] == ["query"]
    assert tool.parameters["properties"] == {"query": {"type": "string"}}


def test_in_paragraph_mode_nothing_opens_and_no_search_is_weighed(env):
    environment = env([row(1)], mode="paragraphs")
    assert not isinstance(environment, MultiTurnEnv)
    assert "support" not in environment.rewards
    with pytest.raises(RecipeError, match=r'env.support_weight[\s\S]*env.mode = "search"'):
        env([row(1)], mode="paragraphs", support_weight=0.5)


def test_a_search_sees_the_paragraphs_of_all_rows_and_cuts_what_it_shows(env):
    environment = env([row(i) for i in range(1, 8)], search_results=2, paragraph_chars=12)
    task = all_tasks(environment)["musique/2hop__1"]
    rollout, _ = run_episode(
        environment, task, [call("old bridge river 5"), call("person 1"), AssistantMessage("City 1")]
    )
    assert [message["role"] for message in rollout.messages] == ["assistant", "tool"] * 2 + ["assistant"]
    first, second = (
        message["content"].split("\n\n") for message in rollout.messages if message["role"] == "tool"
    )
    assert first[0] == f"River 5: It flows pas [{len(FLOWS) - 12} characters cut]"
    assert second[0] == "Person 1: Person 1 was [16 characters cut]"
    assert len(first) == len(second) == 2
    assert rollout.outcome["queries"] == ["old bridge river 5", "person 1"]
    assert [key.partition("#")[0] for key in rollout.outcome["found"][:3:2]] == ["River 5", "Person 1"]
    assert [key.partition("#")[0] for key in rollout.outcome["supporting"]] == ["Person 1", "River 1"]
    assert json.loads(json.dumps(rollout.outcome)) == rollout.outcome


def test_support_by_hand(env):
    environment = env([row(1, question="Which river?"), hotpot_row(2)], search_results=1)
    task = all_tasks(environment)["musique/2hop__1"]
    assert run_episode(environment, task, [AssistantMessage("City 1")])[1] == {
        "f1": 1.0,
        "em": 1.0,
        "format": 1.0,
        "support": 0.0,
    }
    person, river = call("person born"), call("old bridge")
    assert run_episode(environment, task, [person, AssistantMessage("")])[1]["support"] == 0.5
    assert run_episode(environment, task, [person, person, AssistantMessage("")])[1]["support"] == 0.5
    assert run_episode(environment, task, [person, river, AssistantMessage("")])[1] == {
        "f1": 0.0,
        "em": 0.0,
        "format": 0.0,
        "support": 1.0,
    }
    other = all_tasks(environment)["hotpotqa/h2"]
    assert run_episode(environment, other, [person, river, AssistantMessage("A2")])[1]["support"] == 0.0


def test_episodes_do_not_share_what_was_found(env):
    environment = env([row(1)])
    task = all_tasks(environment)["musique/2hop__1"]
    first, second = environment.open(task), environment.open(task)
    first.reply(call("person born"))
    before = first.outcome()
    first.reply(call("old bridge"))
    assert len(before["queries"]) == 1
    assert len(first.outcome()["queries"]) == 2
    assert second.outcome()["queries"] == second.outcome()["found"] == []


def test_wrong_calls_are_reported_and_the_episode_goes_on(env):
    environment = env([row(1)])
    episode = environment.open(all_tasks(environment)["musique/2hop__1"])
    (message,) = episode.reply(AssistantMessage(calls=(ToolCall("search", {"q": "x"}),)))
    assert message["content"].startswith("Error: wrong arguments for search")
    (message,) = episode.reply(call("xyzzy"))
    assert message["content"] == "No paragraph has any of these words."
    assert episode.outcome()["queries"] == ["xyzzy"]


def test_the_split_is_that_of_paragraph_mode(env):
    rows = [row(i) for i in range(30)]
    ids = {
        mode: [[task.task_id for task in env(rows, mode=mode).tasks(split)] for split in ("train", "eval")]
        for mode in ("search", "paragraphs")
    }
    assert ids["search"] == ids["paragraphs"]


def test_demonstrations_search_and_answer_on_whole_data_sets(data, capfd):
    folders = [str(data / name) for name in ("musique", "hotpotqa", "2wikimultihopqa")]
    made = make_env("musique", {"data": folders, "mode": "search", "support_weight": 0.5})
    splits = checked_tasks(made)
    support = []
    for task in (*splits["train"], *splits["eval"]):
        assert task.demonstration[0].calls[0].arguments["query"] in task.messages[-1]["content"]
        _, parts = run_episode(made, task, task.demonstration)
        assert (parts["f1"], parts["em"], parts["format"]) == (1.0, 1.0, 1.0)
        support.append(parts["support"])
    assert sum(support) / len(support) > 0.9
    assert capfd.readouterr().err == "", "bm25s shows no progress bars"
