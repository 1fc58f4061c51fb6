"""The way of a container without network to the endpoint: a socket file in its workspace.

The trainer listens on the file and passes bytes on to the endpoint (``Relay``). In the container this file is
the first program: it listens on a port there, passes bytes on to the socket file, and starts the command. It
uses the standard library alone, and needs Python 3.9 or newer.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

CONNECTIONS = 256
"""Connections that are open at one time; further ones wait."""


class Relay:
    """Passes the bytes of each connection to a listening socket on to another address."""

    def __init__(self, listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
        self._listener, self._connect = listener, connect
        self._free = threading.Semaphore(CONNECTIONS)
        threading.Thread(target=self._accept, name="truing-relay", daemon=True).start()

    def close(self) -> None:
        """Take no further connection."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        finally:
            self._listener.close()

    def _accept(self) -> None:
        while True:
            self._free.acquire()
            try:
                near = self._listener.accept()[0]
            except OSError:  # closed
                return
            try:
                far = self._connect()
            except OSError:  # the client sees that its connection ends
                near.close()
                self._free.release()
                continue
            threading.Thread(target=self._pass_both_ways, args=(near, far), daemon=True).start()

    def _pass_both_ways(self, near: socket.socket, far: socket.socket) -> None:
        """Pass bytes on in both directions, and close both ends."""
        with near, far:
            back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
            back.start()
            _pass_on(near, far)
            back.join()
        self._free.release()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until the source ends."""
    with suppress(OSError):  # one of both has ended
        while part := source.recv(1 << 16):
            target.sendall(part)
    for end, way in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            end.shutdown(way)


def listen_at_file(path: str) -> socket.socket:
    """Return a socket that listens at a file."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def connect_to_file(path: str) -> socket.socket:
    """Return a connection to a socket file."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def main() -> None:
    """Run ``relay.py FILE PORT COMMAND…`` in a container; exit with the command's code."""
    path, port, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    listener = socket.create_server(("127.0.0.1", port))
    Relay(listener, lambda: connect_to_file(path))
    try:
        code = subprocess.run(command).returncode
    except OSError as error:
        sys.exit(f"the command did not start: {error}")
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
