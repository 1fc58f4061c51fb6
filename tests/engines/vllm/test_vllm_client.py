"""A server that is not there, is another one, is full, slow, or answers garbage: an error that names it."""

import asyncio
import threading
import time

import pytest
import torch
from starlette.responses import HTMLResponse, Response, StreamingResponse

from dev.faults.fake_vllm.app import FakeServer
from truing.engines.base import Request, generate
from truing.engines.vllm import client
from truing.engines.vllm.server_process import free_port
from truing.errors import DataError, EngineError, InvalidValueError, PublicationError
from truing.types.sampling_params import SamplingParams

REQUESTS = [Request(torch.arange(20), ("key",))]
PARAMS = SamplingParams(max_new_tokens=4)


class Moody(FakeServer):
    """A server whose answers to requests a test replaces."""

    mood = None

    def generate(self, body):
        return super().generate(body) if self.mood is None else self.mood(body)


def refused(match, call, *, error=EngineError):
    """The error of a call: it names what was got, and what to do."""
    with pytest.raises(error, match=match) as raised:
        call()
    assert raised.value.got is not None
    assert raised.value.remedy
    return raised.value


def test_an_address_with_a_path_is_refused_at_once(served, opened):
    url, begun = f"{served().url}/v1", time.monotonic()
    error = refused(f"no vLLM server for Truing answers at {url}", lambda: opened(url))
    assert "status 404 at /health" in str(error.got)
    assert time.monotonic() - begun < 10


def test_an_adapter_that_another_program_unloaded(served, opened):
    server = served()
    engine, _ = opened(server.url, lora={"rank": 4})
    server.fake.adapters.clear()
    error = refused("refused", lambda: generate(engine, REQUESTS, PARAMS))
    assert "no other program may load or unload adapters" in error.remedy


def test_a_server_that_is_not_there(opened, caplog, monkeypatch):
    monkeypatch.setattr(client, "QUIET", 0.1)
    url, begun = f"http://127.0.0.1:{free_port()}", time.monotonic()
    error = refused(f"no vLLM server answers at {url}", lambda: opened(url, engine={"timeout": 0.5}))
    assert "resume" not in str(error)  # nothing has begun
    assert time.monotonic() - begun < 10
    (logged,) = caplog.messages  # once
    assert f"{url} yet: waiting for 0.5 s" in logged


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"version": "0.31.2"}, "too old"),
        ({"max_lora_rank": 0}, "cannot hold the adapter\n  got: a server without --enable-lora"),
        ({"max_lora_rank": 2}, "cannot hold the adapter\n  got: --max-lora-rank 2\n  expected: at least 4"),
        ({"context": 139}, "too short a context"),
        ({"dtype": torch.bfloat16}, "another dtype\n  got: bfloat16\n  expected: float32"),
    ],
)
def test_a_server_that_cannot_be_used(served, opened, options, match):
    refused(match, lambda: opened(served(**options).url, lora={"rank": 4}, engine={"dtype": "float32"}))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"logprobs_mode": "raw_logprobs"}, "another logprobs_mode"),
        ({"generation_config": "auto"}, "another generation_config"),
        ({"protocol": 1}, "worker extension of another Truing"),
        ({"dtype": "int8"}, "does not say what it is"),
        ({"max_logprobs": None}, "does not say what it is"),
    ],
)
def test_a_server_that_was_started_otherwise(served, opened, change, match):
    server = served()
    hello = server.fake.workers[0].truing_hello() | change
    server.fake.workers[0].truing_hello = lambda: hello
    refused(match, lambda: opened(server.url))


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": [{"id": "m"}]}, {"data": 3}])
def test_a_server_that_lists_no_model(served, opened, models):
    server = served()
    server.fake.models = lambda: models
    refused("does not say what it is", lambda: opened(server.url))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"workers": 1}, "2 workers, 1 by tensor parallelism"),
        ({"lora": {"max_rank": 8, "slots": 1, "sharded": True}}, "--fully-sharded-loras"),
    ],
)
def test_a_server_whose_workers_cannot_be_joined(served, opened, change, match):
    server = served(workers=2)
    hello = server.fake.workers[0].truing_hello() | change
    server.fake.workers[0].truing_hello = lambda: hello
    refused(match, lambda: opened(server.url))


def test_a_server_without_workers(served, opened):
    class NoWorker(FakeServer):
        def call_worker(self, body):
            return Response('{"results": []}', media_type="application/json")

    refused("has no worker", lambda: opened(served(NoWorker).url))


def test_a_worker_that_answers_with_no_object(served, opened):
    class Strings(FakeServer):
        def call_worker(self, body):
            return Response('{"results": ["hello", 7]}', media_type="application/json")

    refused("answered truing_hello with no object", lambda: opened(served(Strings).url))


def test_a_server_that_sends_a_byte_at_a_time(served, opened):
    async def trickle():
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    server = served(Moody)
    engine, _ = opened(server.url, engine={"timeout": 3.0})
    server.fake.mood = lambda body: StreamingResponse(trickle(), media_type="application/json")
    begun = time.monotonic()
    refused("did not answer /inference/v1/generate", lambda: generate(engine, REQUESTS, PARAMS))
    assert time.monotonic() - begun < 20


def test_a_server_without_the_worker_extension(served, opened):
    class Plain(FakeServer):
        def call_worker(self, body):
            return Response("not found", 404)

    error = refused("refused /collective_rpc", lambda: opened(served(Plain).url))
    assert "truing engine start" in error.remedy


def test_servers_of_different_dtypes(served, opened):
    refused_ = pytest.raises(EngineError, match="different dtypes")
    with refused_:
        opened(served().url, served(dtype=torch.bfloat16).url)


def test_a_website_in_place_of_a_server(served, opened):
    class Website(FakeServer):
        def models(self):
            return "<html>"

        def call_worker(self, body):
            return HTMLResponse("<html>Log in</html>")

    error = refused("something else than JSON", lambda: opened(served(Website).url))
    assert "Log in" in str(error.got)


@pytest.mark.parametrize(
    ("mood", "match"),
    [
        (lambda body: Response("full", 503), "refused /inference/v1/generate\n  got: status 503: full"),
        (lambda body: Response("{", media_type="application/json"), "something else than JSON"),
        (lambda body: Response("[]", media_type="application/json"), "something else than JSON"),
        (lambda body: HTMLResponse("<html>"), "something else than JSON"),
        (lambda body: Response('{"choices": []}', media_type="application/json"), "does not fit its request"),
        (lambda body: Response("boom", 500), "refused /inference/v1/generate"),
    ],
    ids=["full", "cut JSON", "a list", "HTML", "empty", "error"],
)
def test_a_server_that_answers_something_else(served, opened, mood, match):
    server = served(Moody)
    engine, _ = opened(server.url, engine={"timeout": 3.0})
    server.fake.mood = mood
    refused(match, lambda: generate(engine, REQUESTS, PARAMS))


def test_a_full_server_asks_for_fewer_requests(served, opened):
    server = served(Moody)
    engine, _ = opened(server.url, engine={"timeout": 1.0})
    server.fake.mood = lambda body: Response("full", 503)
    assert "engine.max_requests" in refused("refused", lambda: generate(engine, REQUESTS, PARAMS)).remedy


def test_a_proxy_that_answers_for_a_server_which_starts_again(served, opened):
    unavailable = Response("no server is available", 503)

    class Proxy(FakeServer):
        begins = False

        def generate(self, body):
            if self.begins:
                self.begins, self.health = False, 503
                threading.Timer(0.5, lambda: setattr(self, "health", 200)).start()
            return super().generate(body) if self.health == 200 else unavailable

        def call_worker(self, body):
            return super().call_worker(body) if self.health == 200 else unavailable

    server = served(Proxy)
    engine, _ = opened(server.url)
    server.fake.begins = True
    (completion,) = generate(engine, REQUESTS, PARAMS)
    assert len(completion.token_ids) == 4
    (incident,) = engine.take_incidents()
    assert f"lost the vLLM server {server.url} (status 503: no server is available); it runs" in incident
    assert "are proven again" in incident


def test_a_slow_server_is_named_within_the_limit(served, opened):
    server = served(Moody)
    engine, _ = opened(server.url, engine={"timeout": 2.0})
    server.fake.mood = lambda body: time.sleep(4)
    begun = time.monotonic()
    error = refused("did not answer /inference", lambda: generate(engine, REQUESTS, PARAMS))
    assert "engine.timeout" in error.remedy
    assert time.monotonic() - begun < 4


def cut(body):
    """Promise more than is sent: the connection ends in the middle of the answer."""
    return Response("{", headers={"content-length": "100"}, media_type="application/json")


def test_a_connection_that_is_cut_once_is_made_again(served, opened):
    server, calls = served(Moody), []

    def once(body):
        calls.append(body["sampling_params"]["seed"])
        return cut(body) if len(calls) == 1 else FakeServer.generate(server.fake, body)

    engine, _ = opened(server.url)
    server.fake.mood = once
    (completion,) = generate(engine, REQUESTS, PARAMS)
    assert len(completion.token_ids) == 4
    assert calls[0] == calls[1]  # the same key
    assert engine.take_incidents() == []  # the server was there


def test_a_connection_that_is_cut_each_time_ends_the_run(served, opened):
    server = served(Moody)
    engine, _ = opened(server.url)
    server.fake.mood = cut
    refused("the connection to the vLLM server .* failed", lambda: generate(engine, REQUESTS, PARAMS))


def test_a_shorter_context_is_that_of_the_engine(served, opened):
    engine, _ = opened(served(context=160).url)
    assert engine.context_length == 160
    with pytest.raises(DataError, match="longer than the context"):
        generate(engine, [Request(torch.arange(157), ("key",))], PARAMS)


def test_a_context_without_room_for_a_turn(served, opened):
    with pytest.raises(InvalidValueError, match="no room"):
        opened(served(context=160).url, sampling={"max_new_tokens": 160})


def test_a_refused_server_is_left_as_it_was(served, opened, tmp_path):
    with pytest.raises(EngineError):
        opened(served(version="0.1").url, engine={"exchange": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def busy(server, status, times, **headers):
    """Let a server refuse its first requests; return the times at which it was asked."""
    asked = []

    def mood(body):
        asked.append(time.monotonic())
        if len(asked) <= times:
            return Response("busy", status, headers=headers)
        return FakeServer.generate(server.fake, body)

    server.fake.mood = mood
    return asked


@pytest.mark.parametrize(("status", "times"), [(429, 3), (503, 3), (500, 1), (500, 2)])
def test_a_busy_server_is_asked_again_after_a_pause(served, opened, status, times):
    server = served(Moody)
    engine, _ = opened(server.url)
    asked = busy(server, status, times)
    (completion,) = generate(engine, REQUESTS, PARAMS)
    assert len(completion.token_ids) == 4
    assert len(asked) == times + 1
    assert asked[1] - asked[0] >= client.FIRST_PAUSE
    assert engine.take_incidents() == []


def test_a_server_that_names_a_pause_gets_it(served, opened):
    server = served(Moody)
    engine, _ = opened(server.url)
    asked = busy(server, 429, 1, **{"retry-after": "1"})
    generate(engine, REQUESTS, PARAMS)
    assert asked[1] - asked[0] >= 1.0


@pytest.mark.parametrize("retry_after", ["60", "9999999999999", "soon", "-1", "١"])
def test_a_pause_beyond_the_limit_or_that_is_none_ends_within_the_limit(served, opened, retry_after):
    server = served(Moody)
    engine, _ = opened(server.url, engine={"timeout": 1.0})
    busy(server, 429, 99, **{"retry-after": retry_after.encode().decode("latin-1")})
    begun = time.monotonic()
    error = refused("refused /inference", lambda: generate(engine, REQUESTS, PARAMS))
    assert "status 429, and wants a pause of" in error.got
    assert time.monotonic() - begun < 10


def test_a_server_that_fails_each_time_ends_the_run_soon(served, opened):
    server = served(Moody)
    engine, _ = opened(server.url)
    asked = busy(server, 500, 99)
    refused("refused /inference", lambda: generate(engine, REQUESTS, PARAMS))
    assert len(asked) == 1 + client.FAILURES


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_that_stays_one_is_not_repeated(served, opened, status):
    server = served(Moody)
    engine, _ = opened(server.url)
    asked = busy(server, status, 99)
    refused("refused /inference", lambda: generate(engine, REQUESTS, PARAMS))
    assert len(asked) == 1


def test_an_adapter_that_is_still_zero_cannot_be_told_from_its_base(served, opened, train):
    class Base(FakeServer):
        """Answers from the base, whatever adapter is asked for."""

        ignores = False

        def generate(self, body):
            return super().generate(body | ({"model": self.options.name} if self.ignores else {}))

    server = served(Base)
    server.fake.ignores = True
    engine, policy = opened(server.url, lora={"rank": 4})
    engine.publish(policy, 0, "0")
    (incident,) = engine.take_incidents()
    assert "whether the engine applies the adapter could not be told" in incident
    train(policy, size=0.2)
    with pytest.raises(PublicationError, match="base"):
        engine.publish(policy, 1, "1")


def test_an_adapter_that_moves_is_told_apart(served, opened, train):
    engine, policy = opened(served().url, lora={"rank": 4})
    engine.take_incidents()
    train(policy, size=0.2)
    engine.publish(policy, 1, "1")
    assert engine.take_incidents() == []
