"""Functions as programs: in threads and in an event loop."""

import asyncio
import json
import sys
import threading
import time

import pytest

import truing
from truing.envs.program import Program
from truing.envs.program_env import Access, ProgramEnv
from truing.errors import ProgramError, RecipeError
from truing.rewards import grade
from truing.types.rollout import Task

ACCESS = Access("http://127.0.0.1:9", "the-key")
TASK = Task("t", "f", ({"role": "user", "content": "one?"},), answer="SECRET", demonstration="SECRET")


def reward(rollout, task):
    return float(rollout.outcome["output"]["score"])


def program(function, **options):
    return Program(function, tasks=[TASK], rewards=[reward], **options)


def call(function, **options):
    return program(function, **options).run(TASK, ACCESS, "r")


def test_a_sync_function_gets_a_task_without_its_answer():
    def run(task, base_url, key):
        assert (task.answer, task.demonstration) == (None, None)
        return {"asked": task.messages[-1]["content"], "url": base_url, "key": key}

    outcome = call(run)
    assert outcome["output"] == {"asked": "one?", "url": "http://127.0.0.1:9/v1", "key": "the-key"}
    assert (outcome["files"], outcome["workspace"]) == ({}, "r")


def test_an_async_function_with_a_workspace():
    async def run(task, base_url, key, workspace):
        await asyncio.sleep(0)
        workspace.joinpath("answer.txt").write_text("42")
        return [1, 2.5, None]

    outcome = call(run, files=["*.txt"])
    assert outcome["output"] == [1, 2.5, None]
    assert outcome["files"] == {"answer.txt": {"size": 2, "text": "42"}}


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_result_may_have_sixty_four_levels():
    assert call(lambda task, base_url, key: nested(64))["output"] == nested(64)


async def sleeps(task, base_url, key):
    await asyncio.sleep(30)


async def ignores_its_end(task, base_url, key):
    while True:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


def counts(task, base_url, key):
    while True:
        time.sleep(0.001)


@pytest.mark.parametrize("run", [sleeps, counts])
def test_a_function_that_takes_too_long(run):
    began = time.monotonic()
    with pytest.raises(ProgramError, match=r"longer than env\.timeout = 0\.2 s"):
        call(run, timeout=0.2)
    assert time.monotonic() - began < 3
    end = time.monotonic() + 3
    while any(thread.name == "truing-program" for thread in threading.enumerate()):  # its loop has ended
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_coroutine_that_does_not_end_is_an_error_too(monkeypatch):
    monkeypatch.setattr("truing.envs.program.function_program.GRACE", 0.2)
    with pytest.raises(ProgramError, match="longer than"):
        call(ignores_its_end, timeout=0.1)


def exits(task, base_url, key):
    sys.exit(1)


async def exits_async(task, base_url, key):
    sys.exit(1)


async def times_out(task, base_url, key):
    raise TimeoutError("of its own")


@pytest.mark.parametrize(
    ("run", "text"),
    [(exits, "SystemExit"), (exits_async, "SystemExit"), (times_out, "of its own")],
)
def test_a_function_that_raises(run, text):
    env = program(run)
    for _ in range(2):  # the event loop survives
        with pytest.raises(ProgramError, match="raised") as caught:
            env.run(TASK, ACCESS, "r")
        assert text in caught.value.got
        assert caught.value.outcome["output"] is None
        first = caught.value.got.partition("File ")[2]
        assert first.startswith(f'"{__file__}"')


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {1, 2}, 10**30, nested(65), nested(5000)], ids=range(6)
)
def test_a_result_that_json_cannot_store(value):
    with pytest.raises(ProgramError, match="JSON cannot store"):
        call(lambda task, base_url, key: value)


@pytest.mark.parametrize("run", [sleeps, counts])
def test_stop_gives_up_what_runs(run):
    env = program(run)
    timer = threading.Timer(0.3, env.stop)
    timer.start()
    for _ in range(2):  # what runs, and what would begin
        with pytest.raises(ProgramError, match="was stopped"):
            env.run(TASK, ACCESS, "r")


def test_a_program_of_a_caller_is_an_environment(rollout_of):
    env = truing.Program(lambda task, base_url, key: {"score": 1}, tasks=[TASK], rewards=[reward], at_once=3)
    assert isinstance(env, ProgramEnv)
    assert (env.at_once, list(env.tasks("train")), list(env.tasks("eval"))) == (3, [TASK], [])
    rollout = rollout_of(TASK, "text", outcome=env.run(TASK, ACCESS, "r"))
    assert grade(rollout, env.rewards).reward == 1.0


def test_rows_of_a_function(tmp_path):
    said = [{"role": role, "content": role} for role in ("user", "assistant", "user", "assistant")]
    rows = [{"prompt": str(i), "level": i} for i in range(8)] + [{"messages": said, "level": 9}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = truing.Program(sleeps, tasks=str(tmp_path / "rows.jsonl"), rewards=[reward])
    assert (
        "columns of data that only your function, in task.info, and your reward functions get: level"
        in env.notes
    )
    tasks = [*env.tasks("train"), *env.tasks("eval")]
    (demonstration,) = [task.demonstration for task in tasks if task.demonstration]
    assert len(demonstration) == 2


def test_wrong_options_and_arguments():
    with pytest.raises(RecipeError, match="no option 'time_out'"):
        program(sleeps, time_out=3)
    with pytest.raises(RecipeError, match="timeout"):
        program(sleeps, timeout=-1)
    with pytest.raises(RecipeError, match="takes other arguments"):
        program(lambda task: None)


def test_a_function_of_a_recipe(make, run, tmp_path, monkeypatch):
    (tmp_path / "own_agent.py").write_text(
        "async def run(task, base_url, key):\n    return task.info['source']\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(make(function="own_agent.py:run"))["output"] == "a book"
    with pytest.raises(RecipeError, match="no function"):
        make(function="sys:path")
