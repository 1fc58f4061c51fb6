"""`truing board`: look at runs in a browser."""

import os
import secrets
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console

PORT = 8484
"""Where the board is by default; where it is taken, another is chosen."""


def board(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A run, or a folder with runs.")] = Path(),
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help=f"Port; by default {PORT}, or one that is free.")] = None,
    token: Annotated[
        str,
        typer.Option(
            envvar="TRUING_BOARD_TOKEN", help="What visitors must bring; beyond loopback one is made up."
        ),
    ] = "",
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
) -> None:
    """Show the runs in DIR, live, read-only: findings first, then charts, then every token."""
    import uvicorn

    from truing.board.queries import Board
    from truing.board.server import LOOPBACK, make_app
    from truing.record.segments import warm_up
    from truing.utils.format import with_count

    console = Console(highlight=False)
    found = Board(folder)
    warm_up()
    local = host in LOOPBACK
    token = token or ("" if local else secrets.token_urlsafe(24))
    listening = _listen(host, port)
    where = f"http://{'[' + host + ']' if ':' in host else host}:{listening.getsockname()[1]}/"
    address = where + (f"?token={token}" if token else "")
    console.print(
        f"{with_count(len(found.folders.runs), 'run')} in {found.folders.root}", markup=False, soft_wrap=True
    )
    console.print(f"the board: {address}  (Ctrl-C ends it)", markup=False, soft_wrap=True)
    if not local:
        console.print(
            "anybody who has this address can read every rollout; it is not encrypted", style="yellow"
        )
    if open_browser:
        webbrowser.open(address)
    Thread(
        target=found.overview.overview_json, daemon=True
    ).start()  # it is read before the first visitor asks
    app = make_app(found, token=token, hosts=frozenset(LOOPBACK) if local else frozenset())
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    with suppress(KeyboardInterrupt):  # it is how a board ends
        uvicorn.Server(config).run(sockets=[listening])
    os._exit(0)  # nobody waits for a thread that still reads for an answer: the board writes nothing


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port that was asked for, else on the usual one, else on any."""
    from truing.errors import TruingError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = [PORT, 0] if port is None else [port]
    for each in tried:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, each))
            found.listen()  # who asks as soon as the address is told waits, and is not refused
            return found
        except OSError as error:
            found.close()
            if each == tried[-1]:
                raise TruingError(
                    f"the board cannot listen on {host}:{each}",
                    got=error.strerror,
                    remedy="--port 0 takes any",
                ) from error
    raise AssertionError
