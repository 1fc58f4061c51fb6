"""Real OpenEnv servers over uvicorn: one that is played by text, one by calls."""

import asyncio
import http.server
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from truing.envs import checked_tasks, make_env
from truing.envs.adapters.openenv import OpenEnvConfig, ServerSession
from truing.errors import DataError, TruingError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def urls():
    """A server for calls and one for text, in a thread."""
    from openenv_numbers import number_servers  # openenv imports gradio: seconds

    servers = number_servers()

    async def serve():
        await asyncio.gather(*(server.serve() for server in servers))

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    while not all(server.started for server in servers):
        time.sleep(0.02)
    ports = [server.servers[0].sockets[0].getsockname()[1] for server in servers]
    yield [f"http://127.0.0.1:{port}" for port in ports]
    for server in servers:
        server.should_exit = True
    thread.join(10)


@pytest.fixture
def by_calls(urls):
    return make_env("openenv", {"url": urls[0], "shown_field": "text", "train": 6, "eval": 2})


@pytest.fixture
def by_text(urls):
    return make_env("openenv", {"url": urls[1], "text_field": "text", "train": 6, "eval": 2})


def half(task):
    return int(task.messages[-1]["content"].rstrip('"}').rpartition(" ")[2])


def act(**arguments):
    return AssistantMessage(calls=(ToolCall("act", arguments),))


def test_tasks_are_seeds_with_different_starts(by_calls):
    splits = checked_tasks(by_calls)
    assert [len(splits[split]) for split in ("train", "eval")] == [6, 2]
    (spec,) = splits["train"][0].tools
    assert spec.description == "Guess the number."
    assert set(spec.parameters["properties"]) == {"number", "why"}


def test_calls_are_steps_and_the_environment_gives_the_reward(by_calls, rollout_of):
    task = by_calls.tasks("train")[0]
    episode = by_calls.open(task)
    (told,) = episode.reply(act(number=2 * half(task) + 2))
    assert told["content"] == "no"
    assert episode.reply(act(number=2 * half(task))) == []
    outcome = episode.outcome()
    assert outcome == {"rewards": [-1.0, 1.0], "done": True, "observation": {"text": "yes"}}
    assert grade(replace(rollout_of(task, ""), outcome=outcome), by_calls.rewards)[0] == 0.0


@pytest.mark.parametrize("arguments", [{"number": "six"}, {"number": -2}, {"why": "no number"}])
def test_a_wrong_action_is_reported_and_is_no_step(by_calls, arguments):
    episode = by_calls.open(by_calls.tasks("train")[0])
    (message,) = episode.reply(act(**arguments))
    assert message["content"].startswith("Error: wrong arguments for act")
    assert episode.outcome()["rewards"] == []


def test_calls_after_the_end_are_not_carried_out(by_calls):
    task = by_calls.tasks("train")[0]
    episode = by_calls.open(task)
    call = act(number=2 * half(task)).calls[0]
    assert episode.reply(AssistantMessage(calls=(call, call))) == []
    assert episode.outcome()["rewards"] == [1.0]


def test_text_is_the_action(by_text):
    task = by_text.tasks("train")[0]
    assert task.tools == ()
    episode = by_text.open(task)
    assert episode.reply(AssistantMessage("0")) == [{"role": "user", "content": '{"text": "no"}'}]
    assert episode.reply(AssistantMessage(str(2 * half(task)))) == []
    assert episode.outcome()["rewards"] == [-1.0, 1.0]


def test_a_fault_of_the_environment_is_no_tool_error(by_text):
    episode = by_text.open(by_text.tasks("train")[0])
    with pytest.raises(RuntimeError, match="invalid literal"):
        episode.reply(AssistantMessage("not a number"))


def test_episodes_do_not_touch_each_other(by_calls):
    task = by_calls.tasks("train")[0]
    first, second = by_calls.open(task), by_calls.open(task)
    for episode in (first, second):
        for _ in range(2):
            assert episode.reply(act(number=2 * half(task) + 2))[0]["content"] == "no"


def test_an_episode_that_ends_without_a_reward_is_an_error_and_not_zero(by_calls, rollout_of):
    task = by_calls.tasks("train")[0]
    outcome = {**by_calls.open(task).outcome(), "done": True}
    with pytest.raises(TruingError, match="gave no reward"):
        grade(replace(rollout_of(task, ""), outcome=outcome), by_calls.rewards)


def test_who_never_acts_was_given_nothing(by_calls, rollout_of):
    task = by_calls.tasks("train")[0]
    episode = by_calls.open(task)
    assert episode.reply(AssistantMessage("I would rather talk.")) == []
    assert grade(replace(rollout_of(task, ""), outcome=episode.outcome()), by_calls.rewards)[0] == 0.0


def test_a_start_that_differs_is_refused(by_calls):
    task = replace(by_calls.tasks("train")[0], answer=7)
    with pytest.raises(DataError, match="shows another start"):
        by_calls.open(task)


def test_what_is_wrong_with_the_recipe_is_reported(urls):
    with pytest.raises(TruingError, match="cannot be reached"):
        make_env("openenv", {"url": "http://127.0.0.1:9"})
    with pytest.raises(DataError, match=r"got: number, why\s+expected: txt"):
        make_env("openenv", {"url": urls[0], "text_field": "txt"})
    with pytest.raises(DataError, match=r"got: text\s+expected: txt"):
        make_env("openenv", {"url": urls[0], "shown_field": "txt"})


@pytest.mark.parametrize("page", [b"<html>hello</html>", b"[]", b'{"action": {}}'])
def test_the_address_of_something_else_is_reported(page):
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *parts):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(DataError, match="does not describe an action"):
            make_env("openenv", {"url": f"http://127.0.0.1:{server.server_port}"})
        server.shutdown()


class NewerClient:
    """As the client of openenv 0.10: methods need a running event loop, observations have metadata."""

    def __init__(self, **_):
        pass

    def _answer(self, **facts):
        asyncio.get_running_loop()

        async def answer():
            return SimpleNamespace(observation={"text": "a", "metadata": {"took": 1.5}}, **facts)

        return answer()

    def reset(self, seed):
        return self._answer(done=False, reward=None)

    def step(self, action):
        return self._answer(done=True, reward=1.0)

    async def close(self):
        pass


def test_the_client_of_a_newer_release(monkeypatch):
    from openenv import core  # gradio: seconds

    monkeypatch.setattr(core, "GenericEnvClient", NewerClient)
    session = ServerSession(OpenEnvConfig(url="http://127.0.0.1:9"))
    assert session.reset(1) == session.step({}) == '{"text": "a"}'
    assert session.outcome() == {"rewards": [1.0], "done": True, "observation": {"text": "a"}}
