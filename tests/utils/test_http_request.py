"""A request ends in time and in memory, whatever the server does."""

import gzip
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from truing.utils.http_request import LARGEST, request

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


def test_an_answer_comes_with_its_status_and_body():
    with server(HEADERS + b"Content-Length: 5\r\n\r\n", b"hello") as url:
        answer = request("POST", url, 5.0, json={})
    assert answer == (200, b"hello")
    assert answer.text(4) == "hell"


@pytest.mark.parametrize("beginning", [b"", HEADERS + b"X: ", HEADERS + b"Content-Length: 99999\r\n\r\n"])
def test_a_server_that_sends_a_byte_at_a_time_is_given_up_in_time(beginning):
    began = time.monotonic()
    with server(beginning, b"x", pause=0.05, endless=True) as url, pytest.raises(TimeoutError):
        request("GET", url, 0.4)
    assert time.monotonic() - began < 3


def test_a_server_that_is_silent_is_given_up_in_time():
    with server(b"", pause=30) as url, pytest.raises(TimeoutError):
        request("GET", url, 0.3)


def test_an_endless_answer_is_given_up():
    chunked = HEADERS + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % 2**20 + b"x" * 2**20 + b"\r\n"
    with server(chunked, chunk, endless=True) as url, pytest.raises(ValueError, match="16 MiB"):
        request("GET", url, 30.0)


def test_a_small_answer_that_decompresses_to_a_large_one_is_given_up():
    bomb = gzip.compress(b"\0" * 4 * LARGEST)
    headers = HEADERS + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with server(headers, bomb) as url, pytest.raises(ValueError, match="16 MiB"):
        request("GET", url, 30.0)


def test_a_server_that_is_not_there_is_an_error_of_the_client():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match="ConnectError"):
        request("GET", f"http://127.0.0.1:{port}/", 5.0)
