"""The endpoint: a server in a thread, which speaks the APIs that programs speak."""

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from truing.endpoint.calls import CallRefused
from truing.endpoint.connections import (
    AT_ONCE,
    CONNECTIONS,
    Connection,
    Server,
    allow_connections,
    show_unless_full,
)
from truing.endpoint.dialects import DIALECTS
from truing.endpoint.dialects.writing import openai_error
from truing.endpoint.exchange import Answer, Earlier, Exchange, Exchanges, Settled, json_response
from truing.errors import InvalidValueError

MODELS = "/v1/models"
GRACE = 1
"""Seconds for clients to read what was written when the endpoint closes."""


class EndpointServer:
    """A context in which programs can call the policy.

    Entered, it listens and serves in a thread of its own. Left, it refuses the calls that are still open, and
    cancels their futures; it stops within about two seconds, and raises the first error of the run that a
    request met, unless the context was left with another error.
    """

    def __init__(
        self,
        answer: Answer,
        settled: Settled,
        earlier: Earlier,
        *,
        model: str,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Describe the server.

        Args:
            answer: gives the reply to a call.
            settled: learns whether a reply was delivered, and what was written.
            earlier: gives a call and its reply, for a client that names it in place of its history.
            model: the name of the policy in the list of models.
            host: the address to listen at.
            port: the port; 0 takes a free one.
        """
        self._shared = Exchanges(answer, settled, earlier)
        self._model, self._address = model, (host, port)
        self._started = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def raise_failure(self) -> None:
        """Raise the first error of the run that a request met, if there is one."""
        if self._shared.failures:
            raise self._shared.failures[0]

    def wait_settled(self) -> None:
        """Return once ``settled`` knows of every answer that a client has, also one that has ended."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()

    def __enter__(self) -> Self:
        allow_connections()
        self._socket = _listening(*self._address)
        config = uvicorn.Config(
            _application(self._shared, self._model),
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,  # the logging of the main program stays as it is
            timeout_keep_alive=600,  # seconds; a program may think longer than the 5 of a web page
            timeout_graceful_shutdown=GRACE,
            backlog=AT_ONCE,
        )
        self._server = Server(config)  # in a thread it installs no signal handlers
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="endpoint", daemon=True
        )
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        if error is None:
            self.raise_failure()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(show_unless_full)
        self._started.set()
        serving = asyncio.create_task(self._server.serve([self._socket]))
        await asyncio.wait({serving})
        if isinstance(error := serving.exception(), Exception):
            self._shared.failures.append(error)
        await self._stopped.wait()

    def _stop(self) -> None:
        """Refuse the calls that are open, and end the server."""
        self._stopped.set()
        self._server.should_exit = True
        self._shared.close()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        raise InvalidValueError(
            "the endpoint cannot listen",
            got=f"{host}, port {port}: {error.strerror or error}",
            expected="an address of this machine, and a free port",
            remedy="take port 0 for any free port",
        ) from error
    # connections inherit it; asyncio sets it only where the socket names its protocol. Without it the second
    # part of each answer waits for the acknowledgement of the first, 40 ms
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _application(shared: Exchanges, model: str) -> Starlette:
    paths = [dialect.path for dialect in DIALECTS]
    listed = {"id": model, "object": "model", "created": 0, "owned_by": "truing"}

    async def models(request: Request) -> Response:
        return json_response({"object": "list", "data": [listed]})

    async def elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        posts = ", ".join(f"POST {path}" for path in paths)
        text = f"the endpoint has no {request.method} {request.url.path}; it has {posts}, GET {MODELS}"
        return json_response(openai_error(CallRefused(error.status_code, text)), error.status_code)

    routes = [
        *(Route(each.path, Exchange(each, shared), methods=["POST"]) for each in DIALECTS),
        Route(MODELS, models),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: elsewhere})
    app.router.redirect_slashes = False
    return app
