"""What clients may hold open: connections, bytes, time; the trainer keeps its files and memory."""

import asyncio
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from test_endpoint_server import BODY, CHAT, post

from truing.endpoint import connections, request_body
from truing.endpoint.calls import CallRefused
from truing.endpoint.request_body import RequestBody
from truing.endpoint.server import EndpointServer


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def ask_half(server, key, size, length=10_000):
    """A request of some length, of which so many bytes have arrived."""
    connection = connect(server)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n"
    connection.sendall(f"{head}authorization: Bearer {key}\r\n\r\n".encode() + b" " * size)
    return connection


def end_of(connection):
    """What a server sends before it closes a connection; a reset has nothing more."""
    text = b""
    try:
        while part := connection.recv(9999):
            text += part
    except ConnectionError:
        pass
    return text.decode()


def test_connections_beyond_the_most_are_refused(policy, monkeypatch):
    monkeypatch.setattr(connections, "CONNECTIONS", 8)
    with (
        EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server,
        ExitStack() as opened,
    ):
        first = [opened.enter_context(connect(server)) for _ in range(8)]
        time.sleep(0.1)
        assert end_of(opened.enter_context(connect(server))).startswith("HTTP/1.1 503 ")
        for each in first:
            each.close()
        time.sleep(0.1)
        assert post(server).status_code == 200


FULL = """
import resource, subprocess, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
sys.path.append(sys.argv[1])
from scripted_policy import Policy
from truing.endpoint.server import EndpointServer
policy = Policy()
with EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server:
    code = "import socket, sys, time; s = [socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    code += " for _ in range(150)]; time.sleep(2)"
    port = server.url.rpartition(":")[2]
    clients = [subprocess.Popen([sys.executable, "-c", code, port]) for _ in range(5)]
    assert [each.wait() for each in clients] == [0] * 5
    began = time.monotonic()
assert time.monotonic() - began < 3
"""


def test_files_do_not_run_out_and_the_log_stays_quiet(request):
    command = [sys.executable, "-c", FULL, str(request.path.parents[1])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_connection_that_asks_nothing_is_closed(policy, monkeypatch):
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.1)
    with (
        EndpointServer(policy.answer, policy.settle, policy.earlier, model="policy") as server,
        connect(server) as silent,
    ):
        assert end_of(silent) == ""
        assert post(server).status_code == 200


def test_a_request_that_does_not_arrive_is_refused(server, monkeypatch):
    monkeypatch.setattr(request_body, "ARRIVAL_SECONDS", 0.1)
    with ask_half(server, "k1", 10) as slow:
        assert end_of(slow).startswith("HTTP/1.1 408 ")


def test_a_program_holds_so_many_bytes_and_all_programs_so_many(server, policy, monkeypatch):
    monkeypatch.setattr(request_body, "MAX_OF_KEY", 5000)
    monkeypatch.setattr(request_body, "MAX_OF_ALL", 6000)
    with ExitStack() as opened:
        opened.enter_context(ask_half(server, "k1", 4990))
        time.sleep(0.1)
        refused = post(server)
        assert refused.status_code == 503
        assert "hold too many bytes" in refused.json()["error"]["message"]
        other = {"authorization": "Bearer k2"}
        assert post(server, headers=other).status_code == 200
        assert post(server, headers=other, json=BODY | {"user": "u" * 1500}).status_code == 503
    time.sleep(0.1)
    assert post(server).status_code == 200


def receiver(*parts):
    """Gives the parts of a body."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b""})

    async def receive():
        return messages.pop(0)

    return receive


def test_nothing_is_kept_of_a_request_without_a_key():
    held = Counter()
    assert asyncio.run(RequestBody(None, held).read(receiver(b"x" * 1000))) == b""
    assert held.total() == 0


def test_bytes_count_until_the_request_is_closed():
    held = Counter()
    body = RequestBody("k", held)
    assert asyncio.run(body.read(receiver(b"ab", b"c"))) == b"abc"
    assert held == {"k": 3}
    body.close()
    assert held == {}
    body = RequestBody("k", held)
    with pytest.raises(CallRefused, match="at most"):
        asyncio.run(body.read(receiver(b"x" * request_body.MAX_BODY, b"y")))
    assert held == {}


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused(server, path, number):
    body = f'{{"model": "m", "messages": [], "input": "x", "tool_choice": {number}}}'
    answer = post(server, path, json=None, content=body.encode())
    assert answer.status_code == 400
    assert "is not JSON" in answer.json()["error"]["message"]
