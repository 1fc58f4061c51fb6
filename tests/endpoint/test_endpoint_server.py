"""The server: what it refuses, many calls at once, clients that go away, its end."""

import asyncio
import json
import logging
import signal
import socket
import threading
import time
from contextlib import closing

import httpx2
import pytest
from scripted_policy import Policy, make_reply

from truing.endpoint.calls import CallRefused
from truing.endpoint.request_body import MAX_BODY
from truing.endpoint.server import EndpointServer
from truing.errors import InvalidValueError

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
KEY = {"authorization": "Bearer k1"}


def post(server, path=CHAT, **arguments):
    return httpx2.post(server.url + path, **({"headers": KEY, "json": BODY} | arguments), timeout=10)


def wait_until(condition):
    limit = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("path", "variable"),
    [(CHAT, "OPENAI_API_KEY"), ("/v1/responses", "OPENAI_API_KEY"), ("/v1/messages", "ANTHROPIC_API_KEY")],
)
def test_a_request_without_a_key_is_told_which_variable_to_set(server, policy, path, variable):
    answer = post(server, path, headers={})
    assert answer.status_code == 401
    assert f"no key: set {variable} to the key" in answer.json()["error"]["message"]
    assert policy.calls == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "is not a JSON object but list"),
        (json.dumps(BODY | {"metadata": json.loads("[" * 70 + "]" * 70)}).encode(), "nested too deeply"),
    ],
    ids=range(6),
)
def test_a_body_that_is_no_json_object_is_refused(server, content, words):
    for path in (CHAT, "/v1/messages"):
        answer = post(server, path, json=None, content=content)
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]


def test_a_body_that_is_too_long_is_refused_once_it_was_read(server):
    answer = post(server, json=None, content=b" " * (MAX_BODY + 1))
    assert answer.status_code == 413
    assert f"at most {MAX_BODY}" in answer.json()["error"]["message"]
    assert post(server, json=None, content=json.dumps(BODY).encode().ljust(MAX_BODY)).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("POST", "/v1/models"), ("PUT", "/v1/messages")])
def test_another_method_is_refused_with_those_that_there_are(server, method, path):
    answer = httpx2.request(method, server.url + path, headers=KEY)
    assert answer.status_code == 405
    assert f"no {method} {path}; it has POST {CHAT}" in answer.json()["error"]["message"]
    assert httpx2.get(f"{server.url}/v1/models/").status_code == 404  # not redirected


def test_a_call_may_be_refused_at_once(policy):
    def answer(key, call):
        raise CallRefused(404, f"no rollout has the key {key}")

    with EndpointServer(answer, policy.settle, policy.earlier, model="policy") as server:
        refused = post(server)
    assert (refused.status_code, refused.json()["error"]["message"]) == (404, "no rollout has the key k1")


def test_an_error_of_the_run_is_raised_where_the_server_closes(policy):
    """Its type only is told to the program, which must not try again."""
    policy.say = lambda call: ZeroDivisionError("a secret of the trainer")
    server = EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy")
    with pytest.raises(ZeroDivisionError, match="a secret"), server:
        answer = post(server)
    with pytest.raises(ZeroDivisionError):
        server.raise_failure()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
    assert (
        answer.json()["error"]["message"]
        == "ZeroDivisionError in the trainer, where the error is shown in full"
    )


def test_an_error_of_the_run_does_not_hide_the_one_that_ends_it(policy):
    policy.say = lambda call: ZeroDivisionError()
    with (
        pytest.raises(KeyError),
        EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server,
    ):
        {}[post(server).status_code]


def test_an_error_of_the_report_of_an_answer_is_one_of_the_run(policy):
    def settle(*of):
        raise LookupError("no such rollout")

    with (
        pytest.raises(LookupError),
        EndpointServer(policy.answer, settle, policy.earlier, model="policy") as server,
    ):
        assert post(server).status_code == 200


def test_two_hundred_calls_are_open_at_once(server, policy):
    policy.say = lambda call: None

    async def ask():
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=30) as client:
            calls = [
                asyncio.create_task(
                    client.post(server.url + CHAT, headers={"authorization": f"Bearer {i}"}, json=BODY)
                )
                for i in range(200)
            ]
            while len(policy.futures) < 200:
                await asyncio.sleep(0.01)
            threads = threading.active_count()
            for (key, _), future in zip(policy.calls, policy.futures, strict=True):
                future.set_result(make_reply(id=key))
            return threads, [(await call).json()["id"] for call in calls]

    threads, ids = asyncio.run(ask())
    assert ids == [f"chatcmpl-{i}" for i in range(200)]
    assert threads < 20
    server.wait_settled()
    assert sorted(policy.settled) == sorted((str(i), str(i), True) for i in range(200))


def raw_request(server, body=BODY, length=None):
    """A connection on which a request was sent."""
    data = json.dumps(body).encode()
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=5)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer k1\r\n"
    connection.sendall(f"{head}content-length: {length or len(data)}\r\n\r\n".encode() + data)
    return connection


def test_a_client_that_goes_away_cancels_its_call(server, policy):
    policy.say = lambda call: None
    raw_request(server).close()
    wait_until(lambda: policy.futures and policy.futures[0].cancelled())
    assert policy.settled == []


def test_a_reply_whose_client_went_away_meanwhile_is_not_delivered(policy):
    """The client closes while the thread of all requests is busy, so that both are known at once."""
    connections = []

    def answer(key, call):
        wait_until(lambda: connections)
        connections[0].close()
        return policy.answer(key, call)

    with EndpointServer(answer, policy.settle, policy.earlier, model="policy") as server:
        connections.append(raw_request(server))
        wait_until(lambda: policy.settled)
    assert policy.settled == [("k1", "r0", False)]


def test_a_client_that_goes_away_before_the_end_of_its_request_makes_no_call(server, policy):
    raw_request(server, length=9999).close()
    assert post(server).status_code == 200
    assert len(policy.calls) == 1


def test_a_reply_that_could_not_be_cancelled_is_not_delivered(server, policy):
    policy.say = lambda call: None
    connection = raw_request(server)
    wait_until(lambda: policy.futures)
    [future] = policy.futures
    assert future.set_running_or_notify_cancel()
    connection.close()
    answer_another(server, policy)
    assert policy.settled == [("k1", "other", True)]
    future.set_result(make_reply(id="late"))
    assert policy.settled[1:] == [("k1", "late", False)]


def answer_another(server, policy):
    policy.say = lambda call: make_reply(id="other")
    assert post(server).json()["id"] == "chatcmpl-other"
    server.wait_settled()


def test_a_call_that_failed_after_its_client_went_away_is_settled_by_nothing(server, policy):
    policy.say = lambda call: None
    connection = raw_request(server)
    wait_until(lambda: policy.futures)
    policy.futures[0].set_running_or_notify_cancel()
    connection.close()
    answer_another(server, policy)
    policy.futures[0].set_exception(CallRefused(400, "late"))
    assert policy.settled == [("k1", "other", True)]


def test_closing_refuses_open_calls_at_once_and_for_good(policy):
    policy.say = lambda call: None
    with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server:
        connections = [raw_request(server) for _ in range(20)]
        wait_until(lambda: len(policy.futures) == 20)
        start = time.monotonic()
    assert time.monotonic() - start < 1
    assert all(future.cancelled() for future in policy.futures)
    for connection in connections:
        with closing(connection):
            text = connection.recv(9999).decode()
            assert text.startswith("HTTP/1.1 503 ")
            assert "x-should-retry: false" in text
            assert "the endpoint is closed" in text


def test_closing_waits_neither_for_a_request_that_does_not_end_nor_for_an_idle_connection(policy):
    with (
        httpx2.Client() as client,
        EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server,
    ):
        client.get(f"{server.url}/v1/models")
        connection = raw_request(server, length=9999)
        time.sleep(0.05)
        start = time.monotonic()
    assert time.monotonic() - start < 1
    connection.close()


def test_closing_does_not_wait_long_for_a_client_that_does_not_read(policy, capfd):
    policy.say = lambda call: make_reply(type(make_reply().message)("x" * 2**26))
    with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server:
        connection = raw_request(server)
        wait_until(lambda: policy.settled)
        start = time.monotonic()
    assert time.monotonic() - start < 3
    connection.close()


def test_an_answer_does_not_wait_for_an_acknowledgement(server):
    seconds = []
    with httpx2.Client() as client:
        for _ in range(20):
            started = time.perf_counter()
            client.post(server.url + CHAT, headers=KEY, json=BODY)
            seconds.append(time.perf_counter() - started)
    assert min(seconds[1:]) < 0.03  # an acknowledgement takes 40 ms


def test_servers_start_and_stop_fast(policy):
    threads, start = set(threading.enumerate()), time.monotonic()
    for _ in range(5):
        with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy"):
            pass
    assert time.monotonic() - start < 2.5
    assert set(threading.enumerate()) <= threads


def test_the_main_programs_signals_and_logging_stay_as_they_are(policy, caplog):
    names = ("uvicorn", "uvicorn.error", "uvicorn.access", "")

    def state():
        loggers = [logging.getLogger(name) for name in names]
        handled = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        return handled, [(each.level, each.propagate, each.disabled, [*each.handlers]) for each in loggers]

    before = state()
    with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server:
        post(server)
        assert state() == before
    assert state() == before
    assert caplog.records == []


def test_a_port_that_is_taken_is_refused_with_a_remedy(server):
    port = int(server.url.rpartition(":")[2])
    other = Policy()
    with pytest.raises(InvalidValueError, match=rf"127\.0\.0\.1, port {port}") as refused:
        EndpointServer(other.answer, other.settle, other.earlier, model="policy", port=port).__enter__()
    assert "port 0" in refused.value.remedy


def test_it_listens_where_it_is_told(policy):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy", port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert post(server).status_code == 200
