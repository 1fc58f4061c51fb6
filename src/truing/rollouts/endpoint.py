"""The endpoint of a run, and the calls that it receives."""

from dataclasses import dataclass

from truing.endpoint.server import EndpointServer
from truing.rollouts.call_queue import CallQueue


@dataclass(frozen=True, eq=False)
class ProgramEndpoint:
    """An endpoint that serves, and the queue of its calls."""

    calls: CallQueue
    server: EndpointServer

    def close(self) -> None:
        """Stop serving; raise what the server failed with."""
        self.server.__exit__(None, None, None)


def open_endpoint(model: str = "policy") -> ProgramEndpoint:
    """Serve the policy under the name of a model."""
    calls = CallQueue()
    server = EndpointServer(calls.answer, calls.settled, calls.earlier, model=model)
    return ProgramEndpoint(calls, server.__enter__())
