"""Truncated prompts: cut in one place, marked for the model, noted for the user, the same everywhere."""

import json
from dataclasses import replace

import pytest
from recorded import samples_of
from runs import Interrupt, assert_same_run, crash_at, mini_table, rows_of

import truing
from truing.api import check
from truing.chat import render_prompt
from truing.config import resolve
from truing.envs.wrappers import with_changed_tasks
from truing.errors import DataError
from truing.record import RunReader
from truing.rollouts.prompt_limit import truncate_prompt, truncation_notes, with_prompt_limit
from truing.trainer.step_replay import replay_step
from truing.types.message import ToolSpec
from truing.types.rollout import Task

LIMIT = 120
SYSTEM = {"role": "system", "content": "Answer. " * 5}


def task(*contents, roles=("user",), name="a", system=True, **more):
    said = ({"role": role, "content": text} for role, text in zip(roles, contents, strict=True))
    return Task(name, "f", (*((SYSTEM,) if system else ()), *said), answer="x", demonstration="x", **more)


def length(chat, made):
    return len(render_prompt(chat, made).token_ids)


class Long:
    """Questions behind a paragraph of growing length."""

    notes = ()
    idle = ("eval0",)

    def __init__(self):
        self.rewards = {"exact": (lambda rollout, task: float(rollout.text == task.answer), 1.0)}

    def tasks(self, split):
        texts = [f"{'word ' * 20 * i}Say {split}{i}" for i in range(6)]
        return [task(text, system=False, name=f"{split}{i}") for i, text in enumerate(texts)]


class LongWorlds(Long):
    def open(self, task):
        self.opened = [*getattr(self, "opened", []), task]
        return self

    def reply(self, said):
        return ()

    def outcome(self):
        return {}


def test_what_fits_is_left_as_it_is(chat):
    made = task("word " * 10)
    assert truncate_prompt(chat, length(chat, made), made) is made


@pytest.mark.parametrize("limit", [95, 96, LIMIT, 200, 303])
def test_no_more_is_cut_than_has_to_be(chat, limit):
    made = task("".join(chr(ord("a") + i % 26) for i in range(300)))
    cut = truncate_prompt(chat, limit, made)
    content, whole = cut.messages[1]["content"], made.messages[1]["content"]
    mark, _, kept = content.partition("\n")
    lost = cut.messages[1]["cut_chars"]
    assert mark == f"[… {lost} characters cut]"
    assert whole == whole[:lost] + kept
    assert length(chat, cut) <= limit
    longer = f"[… {lost - 1} characters cut]\n{whole[lost - 1 :]}"
    assert length(chat, task(longer)) > limit
    assert cut.messages[0] == SYSTEM
    assert replace(cut, messages=()) == replace(made, messages=())


def test_the_longest_message_but_the_systems_is_cut(chat):
    system = {"role": "system", "content": "s" * 200}
    made = task("a" * 50, "b" * 90, "c" * 60, roles=("user", "assistant", "user"), system=False)
    made = replace(made, messages=(system, *made.messages))
    cut = truncate_prompt(chat, length(chat, made) - 10, made)
    assert [after == before for after, before in zip(cut.messages, made.messages, strict=True)] == [
        True,
        True,
        False,
        True,
    ]


def test_tools_count_and_are_never_cut(chat):
    tool = ToolSpec("look", "Looks a word up." * 4, {"type": "object", "properties": {}})
    made = task("word " * 100, tools=(tool,))
    cut = truncate_prompt(chat, length(chat, made) - 100, made)
    assert length(chat, cut) <= length(chat, made) - 100
    assert cut.tools == made.tools


@pytest.mark.parametrize(
    "made", [task("word"), task("word", roles=("system",)), task("a" * 99, "b" * 98, roles=("user", "user"))]
)
def test_what_cannot_fit_is_an_error(chat, made):
    with pytest.raises(DataError, match="prompt of task a cannot be truncated") as error:
        truncate_prompt(chat, 60, made)
    assert error.value.expected == "≤ 60"


def test_notes_count_prompts_and_split_what_they_lost_by_role(chat):
    tasks = [task("word"), task("a" * 300), task("a" * 20, "b" * 300, roles=("user", "assistant"))]
    cut = [truncate_prompt(chat, 150, each) for each in tasks]
    lost = [sum(message.get("cut_chars", 0) for message in each.messages) for each in cut]
    assert lost[0] == 0 < lost[1] != lost[2] > 0
    assert list(truncation_notes(cut, "training", 150)) == [
        f"2 of 3 training prompts are truncated to 150 tokens: user messages lost {lost[1]} characters,"
        f" assistant messages lost {lost[2]} characters"
    ]
    (one,) = truncation_notes(cut[:2], "training", 150)
    assert one.startswith("1 of 2 training prompts is truncated to 150 tokens")
    assert list(truncation_notes(tasks, "training", 150)) == []


def test_an_environment_is_the_same_but_for_its_prompts(chat):
    env, worlds = Long(), LongWorlds()
    held = with_prompt_limit(env, chat, LIMIT)
    assert with_prompt_limit(env, chat, None) is env
    assert [each.task_id for each in held.tasks("train")] == [each.task_id for each in env.tasks("train")]
    assert (held.rewards, held.notes, held.idle) == (env.rewards, env.notes, env.idle)
    assert held.tasks("eval") is held.tasks("eval")  # rendered once
    assert not hasattr(held, "open")
    agentic = with_prompt_limit(worlds, chat, LIMIT)
    agentic.open(agentic.tasks("train")[5])
    assert worlds.opened == [worlds.tasks("train")[5]]  # a world knows its task as it was
    assert with_changed_tasks(object_without_idle(), lambda each: each).idle == ()


def object_without_idle():
    class Plain:
        notes, rewards = (), {}

        def tasks(self, split):
            return []

    return Plain()


@pytest.fixture(scope="module")
def table():
    made = mini_table(episode={"max_prompt_tokens": LIMIT}, eval={"tasks": 6}, checkpoint_every=1)
    del made["env"]
    return made


@pytest.fixture(scope="module")
def whole(table, tmp_path_factory):
    """A finished run, and the notes that it printed."""
    notes = []

    def watch(kind, facts):
        notes.extend([facts["text"]] if kind == "note" else [])

    run = truing.train(table, env=Long(), out=tmp_path_factory.mktemp("long") / "run", on_event=watch).run
    return run, notes


def test_all_stages_and_evaluations_see_the_same_shortened_prompts(whole):
    run, notes = whole
    (train, held) = [text for text in notes if "are truncated" in text]
    assert train.startswith(f"5 of 6 training prompts are truncated to {LIMIT} tokens: user messages lost ")
    assert held.startswith(f"5 of 6 evaluation prompts are truncated to {LIMIT} tokens")
    shown = {}
    for row in (row for rows in rows_of(run).values() for row in rows):
        assert row.prompt_length <= LIMIT
        shown.setdefault(row.task_id, set()).add(row.prompt_hash)
    assert len(shown) == 6
    assert all(len(hashes) == 1 for hashes in shown.values())
    for step in RunReader(run).steps():
        assert step.metrics["context/max"] <= LIMIT
        names = [row.task_id for row in samples_of(RunReader(run).find_table(step.stage, step.step))]
        whole = names.count("train0") / len(names)  # the one that fits
        assert step.metrics["context/cut_share"] == pytest.approx(1 - whole)
        assert (step.metrics["context_lost/user"] > 0) == (whole < 1)
        assert step.metrics["tools/lost_chars"] == 0


@pytest.mark.integration
def test_without_a_limit_no_share_is_recorded(table, tmp_path):
    run = truing.train(
        {**table, "episode": {}}, env=Long(), out=tmp_path / "run", on_event=lambda *_: None
    ).run
    assert not any("context/cut_share" in step.metrics for step in RunReader(run).steps())
    assert all(step.metrics["context_lost/user"] == 0 for step in RunReader(run).steps())


@pytest.mark.integration
def test_a_resumed_run_is_the_same(table, whole, tmp_path):
    with pytest.raises(Interrupt):
        truing.train(table, env=Long(), out=tmp_path / "parts", on_event=crash_at("grpo", 1))
    parts = truing.train(table, env=Long(), out=tmp_path / "parts", resume=True, on_event=lambda *_: None).run
    assert_same_run(whole[0], parts)


def test_a_replay_renders_the_prompts_that_the_run_had(table, whole):
    again = replay_step(whole[0], resolve(table), Long(), "sft", 0)
    tasks = {each.task_id: each for each in again.env.tasks("train")}
    for row in again.table.samples:
        assert render_prompt(again.chat, tasks[row.task_id]).hash == row.prompt_hash


@pytest.mark.integration
def test_prompts_that_are_one_once_they_are_cut_are_refused(table, tmp_path):
    class Tails(Long):
        def tasks(self, split):
            return [task(f"{split:5} {i} " + "w" * 300, system=False, name=f"{split}{i}") for i in range(6)]

    truing.train({**table, "episode": {}}, env=Tails(), out=tmp_path / "whole", on_event=lambda *_: None)
    with pytest.raises(DataError, match="trained on and evaluated"):
        truing.train(table, env=Tails(), out=tmp_path / "cut", on_event=lambda *_: None)


def test_without_the_key_a_prompt_that_does_not_fit_is_an_error_as_ever(table, tmp_path):
    class Huge(Long):
        def tasks(self, split):
            return [task("w" * 3000 + f"{split}{i}", system=False, name=f"{split}{i}") for i in range(6)]

    with pytest.raises(DataError, match="longer than the context"):
        truing.train({**table, "episode": {}}, env=Huge(), out=tmp_path / "run", on_event=lambda *_: None)


def test_check_reads_the_prompts_that_would_be_trained_on(table):
    def longest(**episode):
        (note,) = check({**table, "episode": episode}, env=Long())["prompts fit the context"].notes
        return int(note.split()[4])

    assert longest(max_prompt_tokens=LIMIT) == LIMIT
    assert longest() > 500


def test_a_cut_is_on_record(whole):
    run, _ = whole
    (row, *_) = (row for rows in rows_of(run).values() for row in rows if row.task_id == "train5")
    assert row.messages[0]["cut_chars"] > 0
    assert json.loads(json.dumps(row.messages[0]))["content"].startswith("[… ")
    assert RunReader(run).run_json()["judged"]["tasks_hash"]
