"""The actor of a vLLM server: starts it on the node that Ray chose, and again when its process ends."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray.util

from truing.cluster.rank_actor import PAUSE, POLL_SECONDS, PlacedActor, Report
from truing.config import resolve
from truing.engines.vllm.server_process import (
    CHILD_SERVER,
    ServerProcess,
    free_port,
    server_command,
    server_variables,
)
from truing.models.resolve import resolve_model


class EngineActor(PlacedActor):
    """A vLLM server of its own, for the rank that gets its address."""

    def __init__(self) -> None:
        self._new_process: Callable[[], ServerProcess] | None = None
        self._process: ServerProcess | None = None
        self._url = ""

    def start(self, table: Mapping[str, Any], device: str, log: Path) -> str:
        """Start a server of a recipe on an address of this node; return the address once it answers."""
        recipe, host, port = resolve(table), ray.util.get_node_ip_address(), free_port()
        model = resolve_model(recipe.model.name, recipe.model.revision)
        command = server_command(recipe, model, device, port, CHILD_SERVER, host)
        self._url = f"http://{host}:{port}"
        variables = server_variables(device, recipe.engine.tensor_parallel)
        self._new_process = partial(ServerProcess, command, variables, self._url, log)
        self._process = self._new_process()
        self._process.wait_until_ready(recipe.engine.timeout)
        return self._url

    def poll(self) -> Report:
        """Follow the server for ``POLL_SECONDS``; one that ended starts again, at the same address.

        Its rank waits for it, proves weights again, and ends the run after ``engine.restarts`` losses.
        """
        assert self._process is not None
        assert self._new_process is not None
        end = time.monotonic() + POLL_SECONDS
        while time.monotonic() < end:
            if (code := self._process.exit_code) is not None:
                self._process.stop()  # what a killed server leaves behind holds its memory
                self._process = self._new_process()
                note = f"the vLLM server {self._url} ended with exit code {code}; it starts again"
                return Report(notes=[note])
            time.sleep(PAUSE)
        return Report()

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.stop()
