"""One request and its answer: read the body, ask for the reply, write it unless the client is gone."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from truing.endpoint.calls import CallRefused, Dialect
from truing.endpoint.dialects.reading import continued
from truing.endpoint.read_back import said_in
from truing.endpoint.request_body import LATE, RequestBody, parse_body
from truing.types.model_call import ModelCall, ModelReply, Said

ROUNDS = 5
"""Rounds of the loop within which a connection that its client has closed is known as closed."""

NO_KEY = "no key: set {} to the key that the run gives the program, since it names the rollout"
CLOSED = "the endpoint is closed: the run ended, or does not wait for this program any more"
FAILED = "{} in the trainer, where the error is shown in full"

Answer = Callable[[str, ModelCall], "Future[ModelReply]"]
"""Takes a key and a call, and returns at once, since it runs in the thread of all requests, what will be the
reply. It and its future may raise ``CallRefused``; anything else that they raise is an error of the run."""

Settled = Callable[[str, ModelCall, ModelReply, Said | None], None]
"""Takes a key, a call, its reply, and what was written, None if nothing was; called once for each reply.

Written: all of the answer was handed to the connection, which the client had not closed when the reply was
there. It may still have closed it, or crashed, before it read the answer. None: the client had closed the
connection, or the endpoint was closed, before the answer was written: the client does not have it.

It runs as soon as the answer is written, before any further request is answered; the client may have read the
answer before (``EndpointServer.wait_settled``).

A future whose client is gone is cancelled. It is settled only if it has a reply nevertheless: it was done, or
running, which nothing can cancel. Then ``Settled`` runs where the future gets its result; else it runs in the
thread of all requests.
"""


Earlier = Callable[[str, str], tuple[ModelCall, ModelReply]]
"""Takes a key and the id of a reply that its client has; returns the call and the reply.

Raises ``CallRefused`` where there is none."""


@dataclass
class Exchanges:
    """What the requests of an endpoint share."""

    answer: Answer
    settled: Settled
    earlier: Earlier
    failures: list[Exception] = field(default_factory=list[Exception])  # errors of the run, not of a program
    held: Counter[str] = field(default_factory=Counter[str])  # bytes of bodies by key
    open: set["asyncio.Task[Any]"] = field(default_factory=set["asyncio.Task[Any]"])
    closed: bool = False

    def close(self) -> None:
        """Refuse the requests that are open, and those that come."""
        self.closed = True
        for task in self.open:
            task.cancel()

    def abandon(self, call: "OpenCall") -> None:
        """Cancel a call whose client does not get its reply."""
        call.gone.cancel()
        if not call.future.cancel():
            call.future.add_done_callback(lambda _: self.settle(call, None))

    def settle(self, call: "OpenCall", said: Said | None) -> None:
        """Report the reply to a call, if it has one, and what was written."""
        if call.future.cancelled() or call.future.exception() is not None:
            return
        try:
            self.settled(call.key, call.call, call.future.result(), said)
        except Exception as error:  # noqa: BLE001 — raised again where the trainer closes the endpoint
            self.failures.append(error)


@dataclass(frozen=True)
class OpenCall:
    """A call that has no answer yet."""

    key: str
    call: ModelCall
    body: Mapping[str, Any]
    future: "Future[ModelReply]"
    gone: "asyncio.Task[None]"  # ends when the client closes its connection


class Exchange:
    """An ASGI application that answers the requests of one dialect."""

    def __init__(self, dialect: Dialect, shared: Exchanges) -> None:
        self.dialect, self.shared = dialect, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; when its task is cancelled, it is refused at once."""
        task = asyncio.current_task()
        assert task is not None
        self.shared.open.add(task)
        response = self._closed() if self.shared.closed else await self._response(scope, receive)
        self.shared.open.discard(task)
        if response is not None:
            await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer to a request, or its refusal; None if the client is gone."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = RequestBody(self.dialect.key(headers), self.shared.held)
        try:
            opened = await self._open(headers, request, receive)
            return None if opened is None else await self._answer(opened)
        except CallRefused as refused:
            return self._refusal(refused)
        except asyncio.CancelledError:
            return self._closed()
        except Exception as error:  # noqa: BLE001 — raised again where the trainer closes the endpoint
            self.shared.failures.append(error)
            return self._refusal(CallRefused(500, FAILED.format(type(error).__name__)), again=False)
        finally:
            request.close()

    async def _open(
        self, headers: Mapping[str, str], request: RequestBody, receive: Receive
    ) -> OpenCall | None:
        """Read a request and ask for its reply; None if the client went away meanwhile."""
        data = await request.read(receive)
        if data is None:
            return None
        key = self.dialect.key(headers)
        if key is None:
            raise CallRefused(401, NO_KEY.format(self.dialect.key_variable))
        body = parse_body(data)
        call = self.dialect.read(body, headers)
        if call.continues:
            call = continued(call, *self.shared.earlier(key, call.continues))
        future = self.shared.answer(key, call)
        return OpenCall(key, call, body, future, asyncio.create_task(_disconnected(receive)))

    async def _answer(self, opened: OpenCall) -> Response | None:
        """Wait for the reply to a call; None if the client went away first."""
        reply = asyncio.wrap_future(opened.future)
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs it
        written = False
        try:
            await asyncio.wait({reply, opened.gone}, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            if opened.gone.done():
                return None
            response = self._written(opened, reply.result())
            written = True
            return response
        finally:
            if not written:
                self.shared.abandon(opened)

    def _written(self, opened: OpenCall, reply: ModelReply) -> Response:
        """Return the answer with a reply."""
        if opened.body.get("stream") is True:
            content = "".join(self.dialect.events(opened.body, reply)).encode()
            return ReplyResponse(content, "text/event-stream", self.dialect.path, opened, self.shared)
        content = json.dumps(self.dialect.reply(opened.body, reply)).encode()
        return ReplyResponse(content, "application/json", self.dialect.path, opened, self.shared)

    def _closed(self) -> Response:
        return self._refusal(CallRefused(503, CLOSED), again=False)

    def _refusal(self, refused: CallRefused, *, again: bool = True) -> Response:
        """Return a refusal; ``again``: whether the client may try again where it does so for this status."""
        headers = {} if again else {"x-should-retry": "false"}
        if refused.status == LATE:  # the rest of the request may come as the next one
            headers["connection"] = "close"
        return json_response(self.dialect.error(refused), refused.status, headers)


class ReplyResponse(Response):
    """An answer that reports whether it was delivered, and reads again what it has written."""

    def __init__(self, content: bytes, kind: str, path: str, opened: OpenCall, shared: Exchanges) -> None:
        super().__init__(content, media_type=kind, headers={"cache-control": "no-cache"})
        self.path, self.opened, self.shared = path, opened, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the answer."""
        said, written = None, bytearray()

        async def noting(message: Message) -> None:
            written.extend(message.get("body", b""))
            await send(message)

        try:
            await super().__call__(scope, receive, noting)
            delivered = not self.opened.gone.done()  # at once: it is done also after an answer is complete
            said = said_in(self.path, bytes(written)) if delivered else None
        finally:
            self.opened.gone.cancel()
            self.shared.settle(self.opened, said)


def json_response(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """Return a body as JSON, with text beyond ASCII escaped."""
    return Response(json.dumps(body).encode(), status, dict(headers), "application/json")


async def _disconnected(receive: Receive) -> None:
    """Return when the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
