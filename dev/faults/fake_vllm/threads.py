"""Run the fake server in a thread, in place of the process that the engine starts."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import Options, read_options
from dev.faults.fault import patched
from truing.engines.vllm.server_process import free_port


class ServerThread:
    """A server that answers at ``url`` until it is stopped, or killed as a process may be."""

    def __init__(self, options: Options, make: Callable[[Options], FakeServer] = FakeServer) -> None:
        port = options.port or free_port()
        self.url, self.fake = f"http://127.0.0.1:{port}", make(options)
        config = uvicorn.Config(self.fake.app(), port=port, log_level="critical", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop the server; connections in use are cut."""
        self._server.should_exit = self._server.force_exit = True
        self.fake.abort({})
        self._thread.join()


class StartedThread:
    """What the engine starts in place of a process; see ``server_process.ServerProcess``."""

    def __init__(self, command: list[str], variables: Mapping[str, str], url: str, log: Path) -> None:
        self._thread = ServerThread(read_options(command))

    def wait_until_ready(self, timeout: float) -> None:
        """Return: a thread is ready once it is made."""

    def stop(self) -> None:
        """Stop the server."""
        self._thread.stop()


@contextmanager
def fake_vllm() -> Iterator[None]:
    """Let the engine start fake servers, in threads."""
    replace: Callable[[Any], Any] = lambda real: StartedThread  # noqa: E731
    with patched("truing.engines.vllm.server:ServerProcess", replace):
        yield
