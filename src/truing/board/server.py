"""Serves the board over HTTP: read-only, with a strict security policy, and with a token beyond loopback."""

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import anyio
from plotly.offline import get_plotlyjs
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truing.board.queries import Board
from truing.errors import BadRequestError, TruingError
from truing.record.malformed import as_record_error
from truing.utils.jsonl import dump_json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No external or inline sources, no frames. Charts are images made in the page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STATIC_HEADERS = {"Cache-Control": "no-cache"}
"""Headers of static files: a browser caches them and revalidates each time."""

SECURITY_HEADERS = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
HOST_PATTERN = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(?::\d+)?")
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
COOKIE = "truing_board"
POLL_SECONDS = 1.0
"""Seconds between two polls of the runs."""
SHUTDOWN_SECONDS = 0.8
"""Seconds that open event streams get to end at shutdown."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def make_app(board: Board, *, token: str = "", hosts: frozenset[str] = frozenset(LOOPBACK)) -> ASGIApp:
    """Return the ASGI application.

    Args:
        board: the data.
        token: required of every client, once as `?token=`; "" requires none.
        hosts: accepted host names; empty accepts any. This rejects DNS rebinding.
    """

    def respond(view: str, query: Mapping[str, str]) -> Response:
        try:
            with as_record_error(f"the view {view}"):  # an answer may not be serializable
                return _json(board.answer(view, query))
        except BadRequestError as error:
            return _json({"error": str(error)}, 400)
        except TruingError as error:
            return _json({"error": str(error)}, 404)

    async def answer(request: Request) -> Response:
        call = partial(respond, request.path_params["view"], dict(request.query_params))
        try:
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        except asyncio.CancelledError:  # at shutdown
            return _json({"error": "the board is shutting down"}, 503)

    routes = [
        Route("/api/live", lambda request: _live(board)),
        Route("/api/{view}", answer),
        *(Route(path, _static(data, kind)) for path, (data, kind) in static_files().items()),
    ]
    app = Starlette(
        routes=routes, middleware=[Middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)]
    )
    app.router.redirect_slashes = False  # no redirects
    return Guard(app, token, hosts)


def _live(board: Board) -> Response:
    shutdown = anyio.Event()
    events = run_changes(board, shutdown)
    return EventSourceResponse(
        events, ping=15, shutdown_event=shutdown, shutdown_grace_period=SHUTDOWN_SECONDS
    )


async def run_changes(board: Board, shutdown: anyio.Event) -> AsyncIterator[Mapping[str, str]]:
    """Yield server-sent events with the names of changed runs until shutdown."""
    stamps = await run_in_threadpool(board.overview.stamps)
    yield {"event": "hello", "data": "{}"}
    while True:
        with anyio.move_on_after(POLL_SECONDS):
            await shutdown.wait()
            return
        new_stamps = await run_in_threadpool(board.overview.stamps)
        changed = [name for name in new_stamps if new_stamps[name] != stamps.get(name)]
        if changed or new_stamps.keys() != stamps.keys():
            yield {"event": "changed", "data": dump_json({"runs": changed, "at": time.time()}).decode()}
        stamps = new_stamps


def static_files() -> dict[str, tuple[bytes, str]]:
    """Return every static file by its path; no others are served."""
    static = {"/plotly.js": (get_plotlyjs().encode(), TYPES["js"]), "/empty.css": (b"", TYPES["css"])}
    for path in (files("truing.board") / "pages").iterdir():
        kind = TYPES[path.name.rpartition(".")[2]]
        static["/" if path.name == "index.html" else f"/{path.name}"] = (path.read_bytes(), kind)
    return static


class Guard:
    """Middleware that checks access and sets the headers of every response."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts
        self.cookie_value = hashlib.sha256(token.encode()).hexdigest()  # a cookie cannot hold every character

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [each for each in message["headers"] if each[0] not in SECURITY_HEADERS]
                cached = any(name == b"cache-control" for name, _ in headers)
                headers += [] if cached else [(b"cache-control", b"no-store")]
                message["headers"] = [*headers, *SECURITY_HEADERS.items()]
            await send(message)

        refusal = self._refused(Request(scope))
        await (refusal or self.app)(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        """Return the response to a refused request; None if it is accepted."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("the board is read-only\n", 405)
        if self.hosts and _host_name(request.headers.get("host", "")) not in self.hosts:
            return PlainTextResponse("unknown host name\n", 421)
        if not self.token or hmac.compare_digest(
            request.cookies.get(COOKIE, "").encode(), self.cookie_value.encode()
        ):
            return None
        if not hmac.compare_digest(request.query_params.get("token", "").encode(), self.token.encode()):
            return PlainTextResponse("token required: open /?token=… with the token of the board\n", 401)
        arguments = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        path = "/" + request.url.path.lstrip("/\\")  # two slashes would redirect to another host
        response = RedirectResponse(path + (f"?{urlencode(arguments)}" if arguments else ""), 303)
        response.set_cookie(COOKIE, self.cookie_value, httponly=True, samesite="strict")
        return response


def _host_name(host: str) -> str:
    """Return the name in a `Host` header; "" if it is malformed."""
    match = HOST_PATTERN.fullmatch(host.lower())
    return match[1].strip("[]") if match else ""


def _static(data: bytes, kind: str) -> Any:
    headers = STATIC_HEADERS | {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'}

    def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return serve


def _json(value: Any, status: int = 200) -> Response:
    return Response(dump_json(value), status, media_type="application/json")
