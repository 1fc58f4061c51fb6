"""The endpoint of a run, and the calls that it receives."""

from dataclasses import dataclass

from truing.endpoint.server import Server, open_server
from truing.rollouts.call_queue import CallQueue


@dataclass(frozen=True, eq=False)
class ProgramEndpoint:
    """An endpoint that serves, and the queue of its calls."""

    calls: CallQueue
    server: Server

    @property
    def url(self) -> str:
        """Where programs reach it."""
        return self.server.url

    def check(self) -> None:
        """Raise what the server failed with."""
        self.server.check()

    def close(self) -> None:
        """Stop serving."""
        self.server.close()


def open_endpoint(model: str = "policy") -> ProgramEndpoint:
    """Serve the policy under the name of a model."""
    calls = CallQueue()
    return ProgramEndpoint(calls, open_server(calls.answer, model))
