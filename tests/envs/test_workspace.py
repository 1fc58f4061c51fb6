import json

import pytest

from truing.envs import checked_tasks, make_env
from truing.envs.base import MultiTurnEnv
from truing.envs.workspace import Workspace
from truing.envs.workspace.env import WorkspaceConfig
from truing.envs.workspace.problem_types import KINDS, OFFICE_KINDS, TINY_KINDS
from truing.envs.workspace.tools import TOOLS
from truing.errors import DataError, RecipeError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

PER_KIND = 12
FULL = {"success": 1.0, "progress": 1.0, "valid_calls": 1.0}


def make(**keys):
    return Workspace(WorkspaceConfig(**keys))


@pytest.fixture(scope="module")
def env():
    return make(kinds=tuple(KINDS), train=PER_KIND * len(KINDS), eval=4 * len(KINDS))


@pytest.fixture(scope="module")
def tasks(env):
    return [*env.tasks("train"), *env.tasks("eval")]


def run_episode(env, task, turns):
    """The finished rollout of a policy that says these turns."""
    episode, messages = env.open(task), []
    for said in turns:
        messages += [said.to_dict(), *episode.reply(said)]
    text = turns[-1].content if turns else ""
    return Rollout(
        "r",
        "g",
        task,
        (),
        text,
        Status.DONE,
        SamplingParams(),
        messages=tuple(messages),
        outcome=episode.outcome(),
    )


def parts(env, task, turns):
    return grade(run_episode(env, task, turns), env.rewards)[1]


def does(name, **arguments):
    return AssistantMessage(calls=(ToolCall(name, arguments),))


def values(call):
    """The texts among a call's arguments."""
    for value in call.arguments.values():
        yield from value if isinstance(value, list) else [value]


def test_it_is_an_environment_of_several_turns(env):
    assert isinstance(env, MultiTurnEnv)


def test_the_right_calls_earn_everything(env, tasks):
    assert len(tasks) == 16 * len(KINDS)
    for task in tasks:
        assert parts(env, task, task.demonstration) == FULL, task.task_id


def test_doing_nothing_and_only_speaking_earn_nothing(env, tasks):
    for task in tasks:
        for turns in ((), (task.demonstration[-1],)):
            rollout = run_episode(env, task, turns)
            assert grade(rollout, env.rewards)[:2] == (0.0, dict.fromkeys(FULL, 0.0)), task.task_id


def test_every_call_but_the_last_leaves_the_task_undone(env, tasks):
    for task in tasks:
        assert parts(env, task, task.demonstration[:-2])["success"] == 0.0, task.task_id


def test_a_side_effect_fails_and_reading_is_none(env, tasks):
    everything = make(kinds=tuple(KINDS), train=len(KINDS), eval=len(KINDS), tools="all")
    for task in everything.tasks("train"):
        right = task.demonstration[:-1]
        result = parts(everything, task, (*right, does("write_file", path="x", text="x")))
        assert result["success"] == 0.0
        assert result["progress"] < 1.0
        assert parts(everything, task, (does("read_inbox"), does("list_files"), *right)) == FULL


def test_the_right_calls_of_another_task_do_not_solve_it(env, tasks):
    for task in tasks:
        last = task.demonstration[-2]
        others = [t for t in tasks if t.family == task.family and t.demonstration[-2] != last]
        assert parts(env, task, others[0].demonstration)["success"] == 0.0, task.task_id


def test_progress_by_hand(env):
    task = next(task for task in env.tasks("train") if task.family == "workspace/delay")
    look, move, tell, _ = task.demonstration
    nobody_asked = does("send_slack_message", to=tell.calls[0].arguments["to"], text="hello")
    # wanted: the event in its old place removed, in its new place added, a message added
    assert parts(env, task, (look, move))["progress"] == pytest.approx(2 / 3)
    assert parts(env, task, (look, tell))["progress"] == pytest.approx(1 / 3)
    assert parts(env, task, (look, move, nobody_asked))["progress"] == pytest.approx(1 / 3)
    assert parts(env, task, (nobody_asked, nobody_asked))["progress"] == 0.0
    assert parts(env, task, (look, move, tell, tell))["progress"] == pytest.approx(2 / 3)


def test_valid_calls_by_hand(env):
    task = next(task for task in env.tasks("train") if task.family == "workspace/message")
    unreadable = AssistantMessage(parse_errors=("a call that is no JSON",))
    unknown = does("send_fax", to="Anna")
    assert parts(env, task, (unreadable, unknown, *task.demonstration))["valid_calls"] == pytest.approx(1 / 3)
    assert parts(env, task, (unreadable,))["valid_calls"] == 0.0


def test_all_that_a_call_needs_was_asked_for_or_read(env, tasks):
    for task in tasks:
        episode, known = env.open(task), task.messages[-1]["content"]
        for said in task.demonstration:
            for call in said.calls:
                assert all(value in known for value in values(call)), (task.task_id, call)
            known += "".join(message["content"] for message in episode.reply(said))


def test_chained_kinds_need_what_an_earlier_call_answered(tasks):
    chained = [task for task in tasks if len(task.demonstration) > 2]
    assert len({task.family for task in chained}) == 8
    for task in chained:
        last = task.demonstration[-2].calls[0]
        assert any(value not in task.messages[-1]["content"] for value in values(last)), task.task_id


def test_an_event_that_is_asked_for_is_the_only_one_of_its_title_that_day(env, tasks):
    for task in tasks:
        look = task.demonstration[0].calls[0]
        if look.name == "list_events":
            events = json.loads(env.open(task).reply(task.demonstration[0])[0]["content"])
            assert sum(f"'{event['title']}'" in task.messages[-1]["content"] for event in events) == 1


def test_a_task_opens_the_same_episode_every_time_and_shares_it_with_nobody(env):
    task = env.tasks("train")[0]
    before = json.dumps(task.answer)
    first = run_episode(env, task, task.demonstration)
    assert env.open(task).outcome() == task.answer["office"]
    assert run_episode(env, task, task.demonstration).outcome == first.outcome
    assert json.dumps(task.answer) == before
    assert json.loads(json.dumps(first.outcome)) == first.outcome


@pytest.mark.parametrize("kind", KINDS)
def test_who_knows_by_heart_looks_nothing_up_and_earns_the_same(kind):
    looking, knowing = (make(kinds=(kind,), train=12, eval=4, by_heart=share) for share in (0.0, 1.0))
    for looks, knows in zip(looking.tasks("train"), knowing.tasks("train"), strict=True):
        assert parts(knowing, knows, knows.demonstration) == FULL
        assert all(said in looks.demonstration for said in knows.demonstration)
        for left_out in range(len(knows.demonstration) - 1):  # every call that is left does something
            rest = [*knows.demonstration[:left_out], *knows.demonstration[left_out + 1 :]]
            assert parts(knowing, knows, rest)["success"] == 0.0
        assert knows.demonstration[-1].calls == ()
        assert (looks.messages, looks.answer, looks.tools) == (knows.messages, knows.answer, knows.tools)


def test_by_heart_is_a_share_of_the_demonstrations():
    looking, some = (make(kinds=("figure",), train=400, eval=4, by_heart=share) for share in (0.0, 0.25))
    pairs = zip(looking.tasks("train"), some.tasks("train"), strict=True)
    changed = sum(looks.demonstration != knows.demonstration for looks, knows in pairs)
    assert 70 <= changed <= 130  # 100 ± 3.5 standard deviations


def test_splits_are_apart_in_what_is_asked_for_and_no_task_comes_twice():
    env = make(kinds=tuple(KINDS), train=50 * len(KINDS), eval=15 * len(KINDS))
    splits = checked_tasks(env)
    whole = [repr((t.family, t.messages, t.demonstration)) for tasks in splits.values() for t in tasks]
    assert len(set(whole)) == len(whole) == 65 * len(KINDS)
    # phrasings aside: what is sent to whom by a kind without look-ups
    sent = {
        split: {
            str(task.demonstration[0].calls)
            for task in tasks
            if task.family in ("workspace/message", "workspace/post")
        }
        for split, tasks in splits.items()
    }
    assert not sent["train"] & sent["eval"]


def test_a_task_is_the_same_whatever_the_count_and_kinds_take_turns():
    few, many = (make(kinds=("message", "move"), train=n, eval=n) for n in (5, 30))
    for split in ("train", "eval"):
        assert many.tasks(split)[:5] == few.tasks(split)
    families = [task.family.removeprefix("workspace/") for task in few.tasks("train")]
    assert families == ["message", "move", "message", "move", "message"]
    assert make(kinds=("message", "move"), train=5, eval=5, seed=1).tasks("train") != few.tasks("train")


def test_the_tasks_are_pinned():
    # another draw would change what every recorded run was trained and evaluated on
    env = make(kinds=("message", "report", *TINY_KINDS), train=5, eval=5, seed=0)
    asked = {
        task.family.removeprefix("workspace/"): task.messages[-1]["content"] for task in env.tasks("eval")
    }
    assert asked == PINNED


PINNED = {
    "message": "Send Irene Costa this on Slack: Bring the blue folder, please.",
    "report": "Mail Bruno Abel the total of the newest rent report: subject 'rent', body just the number.",
    "tiny-message": "Tell Sue: toy",
    "tiny-note": "Save Cid: dog",
    "tiny-file": "Tell Ole what web says",
}


def test_the_prompt_shows_the_tools_that_the_kinds_need_or_all():
    for kind in KINDS:
        for task in make(kinds=(kind,), train=20, eval=1).tasks("train"):
            used = {call.name for said in task.demonstration for call in said.calls}
            assert {spec.name for spec in task.tools} == used
    both = make(kinds=("move", "message"), train=2, eval=2)
    assert [spec.name for spec in both.tools] == ["send_slack_message", "list_events", "move_event"]
    assert make(kinds=("move",), train=1, eval=1, tools="all").tools == tuple(TOOLS.values())


def test_a_tool_that_the_prompt_does_not_show_is_not_there():
    env = make(kinds=("message",), train=1, eval=1)
    answer = env.open(env.tasks("train")[0]).reply(does("list_files"))[0]["content"]
    assert answer == "Error: there is no tool 'list_files', only send_slack_message."


def test_the_kinds_for_tiny_are_short_and_distinguished_by_one_letter():
    for task in make(kinds=tuple(TINY_KINDS), train=60, eval=30, system="").tasks("train"):
        assert len(task.messages) == 1
        assert len(task.messages[0]["content"]) <= 30
        for said in task.demonstration:
            assert sum(len(value) for call in said.calls for value in values(call)) <= 8
            assert len(said.content) <= 8


def test_the_default_is_every_kind_for_language_models():
    assert WorkspaceConfig().kinds == tuple(OFFICE_KINDS)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("mesage",), r"unknown kind 'mesage'[\s\S]*did you mean 'message'"),
        (("mail", "mail"), "each kind once"),
    ],
)
def test_kinds_that_cannot_be(kinds, message):
    with pytest.raises(RecipeError, match=message):
        make_env("workspace", {"kinds": kinds})


def test_more_tasks_than_there_are_is_an_error():
    with pytest.raises(
        DataError, match=r"not enough different 'tiny-note' questions for eval[\s\S]*lower env.eval"
    ):
        make(kinds=("tiny-note",), train=1, eval=400)
