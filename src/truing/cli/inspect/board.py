"""`truing board`: show runs in a browser."""

import os
import secrets
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from truing.terminal.say import say

PORT = 8484
"""The default port; if it is in use, the board takes a free one."""


def board(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[DIR]", help="A run, another trainer's trace, or a folder of them."),
    ] = Path(),
    host: Annotated[
        str, typer.Option(help="Address to listen on; one beyond loopback requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help=f"Port; by default {PORT}, or a free one.")] = None,
    token: Annotated[
        str,
        typer.Option(
            envvar="TRUING_BOARD_TOKEN",
            help="Token that visitors need; generated if the address is beyond loopback.",
        ),
    ] = "",
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
) -> None:
    """Show the runs in DIR in the browser, live: findings, charts, every token. Read-only."""
    import uvicorn

    from truing.board.queries import Board
    from truing.board.server import LOOPBACK, make_app
    from truing.record.segments import warm_up
    from truing.utils.format import with_count

    runs = Board(folder)
    warm_up()
    local = host in LOOPBACK
    token = token or ("" if local else secrets.token_urlsafe(24))
    listener = _listen(host, port)
    url = f"http://{'[' + host + ']' if ':' in host else host}:{listener.getsockname()[1]}/"
    address = url + (f"?token={token}" if token else "")
    say(f"{with_count(len(runs.folders.runs), 'run')} in {runs.folders.root}")
    say(f"the board: {address}  (Ctrl-C ends it)")
    if not local:
        say("this address gives access to every rollout, and the connection is not encrypted", "yellow")
    if open_browser:
        webbrowser.open(address)
    Thread(target=runs.overview.overview_json, daemon=True).start()  # read the runs before the first request
    app = make_app(runs, token=token, hosts=frozenset(LOOPBACK) if local else frozenset())
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    with suppress(KeyboardInterrupt):  # Ctrl-C ends the board
        uvicorn.Server(config).run(sockets=[listener])
    os._exit(0)  # do not wait for threads that still read: the board writes nothing


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket: on the given port, else on the default one, else on any."""
    from truing.errors import TruingError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [PORT, 0] if port is None else [port]
    for candidate in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen()  # a request right after the address is printed waits, and is not refused
            return listener
        except OSError as error:
            listener.close()
            if candidate == ports[-1]:
                raise TruingError(
                    f"the board cannot listen on {host}:{candidate}",
                    got=error.strerror,
                    remedy="--port 0 takes a free one",
                ) from error
    raise AssertionError
