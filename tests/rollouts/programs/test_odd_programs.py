"""Programs that misbehave: what becomes of their calls, and the rollouts beside them stay as they are."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import pytest
import torch
from openai import APIStatusError, AsyncOpenAI, OpenAI
from tests.rollouts.programs.test_run import Programs, rollouts

from truing.algos.flatten import flatten
from truing.envs.program_env import CallRules
from truing.rollouts.turn_sources import demonstrated
from truing.types.message import AssistantMessage
from truing.types.status import EndedBy, Status

ODD = "/1"
"""The end of the name of the rollout whose program is odd."""


def user(text):
    return {"role": "user", "content": text}


def ask(client, *messages, **options):
    return client.chat.completions.create(model="policy", messages=list(messages), **options)


def three_turns(task, client):
    messages = []
    for text in ("one", "two", "three"):
        messages.append(user(text))
        messages.append(ask(client, *messages).choices[0].message.to_dict())


@dataclass
class Mixed(Programs):
    """The second rollout runs an odd program, the others make three calls each."""

    program: object = three_turns
    odd: object = None

    def run(self, task, access, name):
        if self.odd is None or not name.endswith(ODD):
            return super().run(task, access, name)
        return self.odd(access) or {}


@contextmanager
def client_of(access, **options):
    options = {"max_retries": 0, "timeout": 30} | options
    with OpenAI(base_url=f"{access.url}/v1", api_key=access.key, **options) as client:
        yield client


def tokens(rollout):
    return [turn.token_ids.tolist() for turn in rollout.turns]


@pytest.fixture
def beside(chat, tiny):
    """Runs an odd program beside two others; returns its rollout when theirs were seen to be unharmed."""

    def run(odd, **env):
        usual = rollouts(chat, Mixed(), tiny)
        started = time.monotonic()
        made = rollouts(chat, Mixed(odd=odd, **env), tiny)
        assert time.monotonic() - started < 30
        for i in (0, 2):
            assert made[i].status is Status.DONE
            assert made[i].outcome["calls"][2]["continues"] == 2
            assert tokens(made[i]) == tokens(usual[i])
        return made[1]

    return run


def trained_once(rollout):
    """The calls of each sample, once it was seen that each sampled token is trained in one at most."""
    samples = flatten(rollout)
    trained = torch.cat([sample.token_ids[sample.policy_mask] for sample in samples])
    kept = [turn.token_ids for turn in rollout.turns if turn.trained and turn.call]
    assert torch.equal(trained, torch.cat(kept) if kept else trained[:0])
    return [[turn.call for turn in sample.turns] for sample in samples]


def test_a_history_that_is_edited_in_every_call_is_a_sample_per_call(beside):
    def odd(access):
        with client_of(access) as client:
            messages = [user("begin")]
            for i in range(5):
                ask(client, *messages)
                messages += [{"role": "assistant", "content": f"never said {i}"}, user("go on")]

    rollout = beside(odd)
    assert trained_once(rollout) == [[1], [2], [3], [4], [5]]
    assert all("edits the history" in call["restart"] for call in rollout.outcome["calls"][1:])


@pytest.mark.parametrize(
    ("texts", "trained", "said"),
    [
        (["a", "b", "c", "d"], [[1], [], [], []], "begins a conversation of its own"),
        (["a"] * 4, [[1], [2], [3], [4]], "asks the same as call"),
    ],
)
def test_calls_in_parallel_are_a_sample_each(beside, texts, trained, said):
    answers = []

    async def gathered(access):
        async with AsyncOpenAI(base_url=f"{access.url}/v1", api_key=access.key, max_retries=0) as client:
            made = await asyncio.gather(*(ask(client, user(text)) for text in texts))
            answers.extend(each.choices[0].message.content for each in made)

    rollout = beside(lambda access: asyncio.run(gathered(access)))
    samples = sorted(flatten(rollout), key=lambda sample: sample.turns[0].call)
    assert [[turn.call for turn in sample.turns if sample.policy_mask.any()] for sample in samples] == trained
    assert len({*answers}) == 4
    assert all(said in call["restart"] for call in rollout.outcome["calls"][1:])
    trained_once(rollout)


class Slow:
    """A policy whose answers take longer than a client waits."""

    def __init__(self, chat):
        self.chat, self.due = chat, {}

    def running_turns(self):
        return nullcontext(self)

    @property
    def unfinished(self):
        return len(self.due)

    def add(self, conversations):
        self.due |= {each: time.monotonic() + 1.2 for each in conversations}

    def step(self):
        done = [each for each, due in self.due.items() if due < time.monotonic()]
        for each in done:
            del self.due[each]
        time.sleep(0.005)
        return [(each, demonstrated(self.chat, each, AssistantMessage("moon"))) for each in done]

    def release(self, conversation):
        pass


def test_a_request_that_a_client_sends_again_after_its_time_out_is_one_call(chat, tiny):
    def program(task, client):
        with client.with_options(timeout=0.5, max_retries=4) as impatient:
            return {"said": ask(impatient, user("one")).choices[0].message.content}

    (rollout,) = rollouts(chat, Programs(program), tiny, Slow(chat), count=1)
    assert rollout.outcome["said"] == "moon"
    assert rollout.outcome["calls"] == [{"call": 1, "conversation": 0}]
    assert len(flatten(rollout)) == 1


def test_a_loop_without_end_is_refused_at_max_calls_and_its_record_is_short(beside):
    def odd(access):
        refused = 0
        with client_of(access) as client:
            messages = [user("begin")]
            while refused < 110:
                try:
                    messages.append(ask(client, *messages).choices[0].message.to_dict())
                    messages.append(user("go on"))
                except APIStatusError:
                    refused += 1

    rollout = beside(odd, calls=CallRules(max_calls=4))
    assert (rollout.status, rollout.ended_by) == (Status.TRUNCATED, EndedBy.TURNS)
    assert trained_once(rollout) == [[1, 2, 3, 4]]
    assert len(rollout.outcome["refused"]) == 100
    assert all("max_calls = 4" in text for text in rollout.outcome["refused"])
    assert rollout.outcome["refused_calls"] == 110


def test_a_key_that_was_guessed_is_refused_and_one_that_was_taken_counts_to_its_rollout(chat, tiny):
    keys, asked = {}, threading.Event()

    def first(task, client):
        keys["first"] = client.api_key
        three_turns(task, client)
        assert asked.wait(20)

    def odd(access):
        with client_of(access) as client:
            ask(client, user("mine"))
            while "first" not in keys:
                time.sleep(0.01)
            with suppress(APIStatusError):
                ask(client.with_options(api_key=keys["first"][:-1] + "?"), user("guessed"))
            ask(client.with_options(api_key=keys["first"]), user("taken"))
            asked.set()

    one, other = rollouts(chat, Mixed(first, odd=odd), tiny, count=2)
    assert len(one.outcome["calls"]) == 4
    assert len(other.outcome["calls"]) == 1
    assert "refused" not in other.outcome
    taken = [call for call in one.outcome["calls"] if "conversation of its own" in call.get("restart", "")]
    assert [call["untrained"] for call in taken] == [True]


def test_a_thousand_quick_calls_are_answered_or_refused(beside):
    said = []

    def odd(access):
        def some(number):
            with client_of(access) as client:
                for i in range(50):
                    try:
                        ask(client, user(f"{number}, {i}"))
                        said.append("answered")
                    except APIStatusError:
                        said.append("refused")

        threads = [threading.Thread(target=some, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rollout = beside(odd, calls=CallRules(max_calls=8))
    assert len(said) == 1000
    assert said.count("answered") == len(rollout.outcome["calls"]) == 8
    assert rollout.outcome["refused_calls"] == 992


def test_a_body_of_ten_megabytes_is_refused_as_too_long_at_once(beside):
    def odd(access):
        with client_of(access) as client:
            ask(client, user("begin"))
            started = time.monotonic()
            with pytest.raises(APIStatusError, match="context_length_exceeded: the messages have 115343"):
                ask(client, user("a word and " * 2**20))
            return {"seconds": time.monotonic() - started}

    rollout = beside(odd)
    assert rollout.outcome["seconds"] < 5
    assert (rollout.status, rollout.ended_by) == (Status.TRUNCATED, EndedBy.CONTEXT)


def connection(access):
    url = urlsplit(access.url)
    return socket.create_connection((url.hostname, url.port))


def request(access, text):
    body = json.dumps({"model": "policy", "messages": [user(text)]})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {access.key}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


def test_connections_that_close_midway_train_nothing(beside):
    def odd(access):
        data = request(access, "lost")
        for length in (10, len(data) // 2, len(data) - 1, len(data)):
            with connection(access) as opened:
                opened.sendall(data[:length])
        with client_of(access) as client:
            ask(client, user("kept"))

    rollout = beside(odd)
    *lost, kept = rollout.outcome["calls"]
    assert [call.get("undelivered") for call in lost] == [True] * len(lost)
    assert len(lost) <= 1  # the request that was whole, unless its client was seen to be gone before it
    assert trained_once(rollout) == [[kept["call"]]]


def test_a_stream_that_is_read_in_part_was_delivered(beside):
    def odd(access):
        headers = {"authorization": f"Bearer {access.key}"}
        body = {"model": "policy", "messages": [user("one")], "stream": True}
        url = f"{access.url}/v1/chat/completions"
        with httpx2.stream("POST", url, json=body, headers=headers, timeout=30) as answer:
            next(answer.iter_lines())

    rollout = beside(odd)
    assert trained_once(rollout) == [[1]]
    assert rollout.outcome["calls"] == [{"call": 1, "conversation": 0}]
