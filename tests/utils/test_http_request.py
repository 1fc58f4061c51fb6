"""A request ends in time and in memory, whatever the server does."""

import gzip
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from truing.utils.http_request import LARGEST, Connections, request

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@contextmanager
def server(*parts, pause=0.0, endless=False):
    """A server that sends these parts to one client, with a pause after each, the last one for ever."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        connection, _ = listening.accept()
        connection.recv(65536)
        sent = iter(parts)
        try:
            while not over.is_set():
                part = next(sent, parts[-1] if endless else None)
                if part is None:
                    break
                connection.sendall(part)
                over.wait(pause)
        except OSError:
            pass
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        over.set()
        thread.join()
        listening.close()


def kept(method, url, timeout, **options):
    """The same by connections that stay open."""
    connections = Connections(url, 2)
    try:
        return connections.request(method, "", timeout, **options)
    finally:
        connections.close()


both = pytest.mark.parametrize("send", [request, kept], ids=["alone", "kept open"])


@both
def test_an_answer_comes_with_its_status_and_body(send):
    with server(HEADERS + b"Content-Length: 5\r\n\r\n", b"hello") as url:
        answer = send("POST", url, 5.0, json={})
    assert answer == (200, b"hello", "text/plain", "")
    assert answer.text(4) == "hell"


@both
@pytest.mark.parametrize("beginning", [b"", HEADERS + b"X: ", HEADERS + b"Content-Length: 99999\r\n\r\n"])
def test_a_server_that_sends_a_byte_at_a_time_is_given_up_in_time(beginning, send):
    began = time.monotonic()
    with server(beginning, b"x", pause=0.05, endless=True) as url, pytest.raises(TimeoutError):
        send("GET", url, 0.4)
    assert time.monotonic() - began < 3


@both
def test_a_server_that_is_silent_is_given_up_in_time(send):
    with server(b"", pause=30) as url, pytest.raises(TimeoutError):
        send("GET", url, 0.3)


@both
def test_an_endless_answer_is_given_up(send):
    chunked = HEADERS + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % 2**20 + b"x" * 2**20 + b"\r\n"
    with server(chunked, chunk, endless=True) as url, pytest.raises(ValueError, match="16 MiB"):
        send("GET", url, 30.0)


@both
def test_a_small_answer_that_decompresses_to_a_large_one_is_given_up(send):
    bomb = gzip.compress(b"\0" * 4 * LARGEST)
    headers = HEADERS + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with server(headers, bomb) as url, pytest.raises(ValueError, match="16 MiB"):
        send("GET", url, 30.0)


@both
def test_a_server_that_is_not_there_is_an_error_of_the_client(send):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match="ConnectError"):
        send("GET", f"http://127.0.0.1:{port}/", 5.0)


def test_closing_ends_requests_that_have_no_answer():
    with server(b"", pause=30) as url:
        connections = Connections(url, 2)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(connections.request, "GET", "", 60.0)
            time.sleep(0.2)
            connections.close()
            assert isinstance(waiting.exception(timeout=5), ConnectionError)


def test_more_requests_than_connections_are_all_answered():
    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    echo = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    connections = Connections(f"http://127.0.0.1:{echo.server_port}", 3)
    with ThreadPoolExecutor(16) as pool:
        bodies = list(pool.map(lambda n: connections.request("POST", "/x", 20.0, json=n).body, range(100)))
    connections.close()
    echo.shutdown()
    echo.server_close()
    assert bodies == [str(n).encode() for n in range(100)]
