"""The board over HTTP: read-only, guarded, with its headers on every answer, and live."""

import asyncio
import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from importlib.resources import files

import anyio
import pytest
import uvicorn
from shown import opened_run, write
from starlette.routing import Route
from starlette.testclient import TestClient

from truing.board import server
from truing.board.queries import Board
from truing.board.server import HEADERS, LOOPBACK, make_app, run_changes, static_files

LOCAL = frozenset(LOOPBACK)


def client_of(board, token="", hosts=LOCAL, base="http://127.0.0.1:8484"):
    app = make_app(board, token=token, hosts=hosts)
    return TestClient(app, base_url=base, follow_redirects=False, raise_server_exceptions=True)


def guarded(answer):
    for name, value in HEADERS.items():
        assert answer.headers.get_list(name) == [value], (answer.url, name)
    own_file = answer.status_code == 200 and not answer.url.path.startswith("/api/")
    kept = "no-cache" if own_file else "no-store"
    assert answer.headers.get_list("cache-control") == [kept], answer.url
    return True


PATHS = [
    ("/", 200),
    ("/main.js", 200),
    ("/style.css", 200),
    ("/plotly.js", 200),
    ("/api/runs", 200),
    ("/api/run?run=mini", 200),
    ("/api/rules", 200),
    ("/api/run", 400),
    ("/api/nothing", 400),
    ("/api/chart?run=mini&chart=lr&from=x", 400),
    ("/api/step?run=mini&stage=grpo&step=-1", 400),
    ("/api/run?run=maxi", 404),
    ("/api/step?run=mini&stage=grpo&step=99", 404),
    ("/api/run?run=%FF%FE", 404),
    ("/api/run?run=%00", 404),
    ("/api/run?run=" + "x" * 5000, 404),
    ("/api/sample?run=mini&stage=grpo&step=1&sample=%F0%9F%98%80", 404),
    ("/api/", 404),
    ("/api", 404),
    ("/api/run/mini", 404),
    ("/nothing.js", 404),
    ("/index.html", 404),
    ("/pages/main.js", 404),
    ("/../server.py", 404),
    ("/%2e%2e/server.py", 404),
    ("/..%2fserver.py", 404),
    ("//etc/passwd", 404),
    ("/main.js/", 404),
]


@pytest.mark.parametrize(("path", "status"), PATHS, ids=lambda each: str(each)[:40])
def test_every_answer_has_its_status_and_its_headers(board, path, status):
    with client_of(board) as client:
        for method in ("GET", "HEAD"):
            answer = client.request(method, path)
            assert (answer.status_code, guarded(answer)) == (status, True)
        answer = client.get(path)
    if path.startswith("/api/") and status in (400, 404) and path.count("/") == 2 and path != "/api/":
        result = answer.json()
        assert list(result) == ["error"]
        assert "Traceback" not in result["error"]
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/", "/main.js", "/plotly.js"])
def test_a_file_that_is_still_the_same_is_not_sent_again(board, path):
    with client_of(board) as client:
        first = client.get(path)
        again = client.get(path, headers={"if-none-match": first.headers["etag"]})
        other = client.get(path, headers={"if-none-match": '"of another version"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (other.status_code, other.content) == (200, first.content)
    assert first.headers["content-security-policy"] == again.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/main.js", "/api/live", "/nothing"])
def test_nothing_but_reading_is_allowed(board, method, path):
    with client_of(board) as client:
        answer = client.request(method, path)
    assert (answer.status_code, answer.text, guarded(answer)) == (405, "the board is read-only\n", True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9", 200),
        ("localhost:8484", 200),
        ("LOCALHOST", 200),
        ("[::1]:8484", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("evil.example/localhost", 421),
        ("[::1", 421),
        ("[nothing]", 421),
        ("localhost:x", 421),
        ("", 421),
    ],
)
def test_another_name_is_turned_away(board, host, status):
    with client_of(board) as client:
        answer = client.get("/api/rules", headers={"host": host})
    assert (answer.status_code, guarded(answer)) == (status, True)


def test_any_name_is_known_where_none_is_given(board):
    with client_of(board, hosts=frozenset()) as client:
        assert client.get("/api/rules", headers={"host": "evil.example"}).status_code == 200


@pytest.mark.parametrize("token", ["secret", "é", '→ with spaces & ünïcode=;,"', "a" * 500])
def test_a_token_is_brought_once_and_then_in_a_cookie(board, token):
    with client_of(board, token) as client:
        for given in ({}, {"token": ""}, {"token": "wrong"}, {"token": token + " "}, {"token": "wröng→"}):
            answer = client.get("/api/rules", params=given)
            assert (answer.status_code, guarded(answer)) == (401, True)
        answer = client.get("/api/chart", params={"token": token, "run": "mini", "chart": "lr"})
        assert (answer.status_code, guarded(answer)) == (303, True)
        assert answer.headers["location"] == "/api/chart?run=mini&chart=lr"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert token not in cookie
        assert client.get(answer.headers["location"]).status_code == 200
        client.cookies.clear()
        assert client.get("/", headers={"cookie": "truing_board=wrong"}).status_code == 401
        assert client.get("/", headers={"cookie": "truing_board=\xe9".encode("latin-1")}).status_code == 401
        assert client.get("/?token=" + "%FF").status_code == 401


def test_where_a_token_leads_is_always_here(board):
    with client_of(board, "t") as client:
        for path in ("//evil.example/", "/\\evil.example", "/api/rules"):
            client.cookies.clear()
            answer = client.get(f"http://127.0.0.1:8484{path}?token=t")
            target = answer.headers["location"]
            assert not target.startswith(("//", "/\\", "http")), target


def test_large_answers_are_packed_and_small_ones_are_not(board):
    with client_of(board) as client:
        packed = client.get("/api/run", params={"run": "mini"}, headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        plain = client.get("/api/run", params={"run": "mini"}, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert packed.json() == plain.json()
        small = client.get("/api/run", headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in small.headers


def test_files_are_exactly_those_of_the_package():
    pages = {each.name: each.read_bytes() for each in (files("truing.board") / "pages").iterdir()}
    served = static_files()
    expected = {"/" if name == "index.html" else f"/{name}": data for name, data in pages.items()}
    assert {
        path: data for path, (data, _) in served.items() if path not in ("/plotly.js", "/empty.css")
    } == expected
    assert served["/main.js"][1] == "text/javascript"


def test_no_route_takes_a_path(board):
    app = make_app(board).app
    paths = sorted(route.path for route in app.routes)
    assert paths == sorted(["/api/live", "/api/{view}", *static_files()])
    assert all(isinstance(route, Route) and "path" not in route.param_convertors for route in app.routes)


def test_pages_ask_for_nothing_from_elsewhere():
    for path, (data, _) in static_files().items():
        if path != "/plotly.js":
            text = data.decode()
            for word in ("http://", "https://", "//cdn", "<script>", "eval(", "innerHTML"):
                result = text.replace("http://www.w3.org/2000/svg", "")
                assert word not in result, (path, word)


def events_of(board, act):
    """What a listener hears up to and with the first change after ``act``."""

    async def listen():
        heard = []
        stream = run_changes(board, anyio.Event())
        heard.append(await anext(stream))
        act()
        heard.append(await asyncio.wait_for(anext(stream), 10))
        await stream.aclose()
        return heard

    return asyncio.run(listen())


def test_a_listener_receives_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "POLL_SECONDS", 0.02)
    with opened_run(tmp_path / "a") as writer, opened_run(tmp_path / "b"):
        write(writer, 0)
        board = Board(tmp_path)
        hello, changed = events_of(board, lambda: write(writer, 1))
        assert (hello["event"], changed["event"]) == ("hello", "changed")
        assert json.loads(changed["data"])["runs"] == ["a"]
        _, changed = events_of(board, writer.close)  # it is no longer being written
        assert json.loads(changed["data"])["runs"] == ["a"]


def test_a_listener_receives_a_run_that_is_new(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "POLL_SECONDS", 0.01)
    board = Board(tmp_path)
    _, changed = events_of(board, lambda: opened_run(tmp_path / "new").close())
    assert json.loads(changed["data"])["runs"] == ["new"]


def test_a_run_that_vanishes_does_not_end_the_stream(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "POLL_SECONDS", 0.01)
    opened_run(tmp_path / "a").close()
    board = Board(tmp_path)
    _, changed = events_of(board, lambda: (tmp_path / "a").rename(tmp_path / ".gone"))
    assert changed["event"] == "changed"


def test_a_listener_over_http_receives_events_and_ends_with_the_server(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "POLL_SECONDS", 0.05)
    writer = opened_run(tmp_path / "a")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = make_app(Board(tmp_path))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/live", headers={"accept-encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=10) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers.get("content-encoding") is None
        assert all(stream.headers.get_all(name) == [value] for name, value in HEADERS.items())
        assert stream.readline() == b"event: hello\r\n"
        write(writer, 0)
        while b'"runs": ["a"]' not in stream.readline():
            pass
        running.should_exit = True
        began = time.monotonic()
        try:
            while stream.readline():
                pass
        except OSError:
            pass
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert time.monotonic() - began < 5
    writer.close()


@pytest.mark.integration
def test_the_command_listens_and_ends_with_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "truing", "board", str(tmp_path), "--port", "0", "--token", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"0 runs in {tmp_path}\n"
            address = process.stdout.readline().split()[2]
            assert address.endswith("/?token=t")
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            assert b"<html" in opener.open(address, timeout=20).read()
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(address.partition("?")[0], timeout=20)
            with opener.open(address.partition("?")[0] + "api/live", timeout=20) as stream:
                assert stream.readline().startswith(b"event: hello")
                process.send_signal(signal.SIGINT)
                process.wait(timeout=20)
            assert (process.returncode, process.stderr.read()) == (0, "")
        finally:
            process.kill()


def test_gzip_of_the_charts_library_is_whole(board):
    with (
        client_of(board) as client,
        client.stream("GET", "/plotly.js", headers={"accept-encoding": "gzip"}) as answer,
    ):
        data = b"".join(answer.iter_raw())
    assert gzip.decompress(data) == static_files()["/plotly.js"][0]
