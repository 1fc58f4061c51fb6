"""A board that is served, a Chromium that looks at it, and a page on which nothing may go wrong."""

import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from truing.board.queries import Board
from truing.board.server import make_app

ARGS = ("gpu", "quic", "background-networking", "component-update", "sync")
NAMES = ("chromium", "chromium-browser", "google-chrome")
NONE = "these tests need Chromium: apt-get install chromium, or name one in TRUING_CHROMIUM"
TIMEOUT_MS = 15_000
"""Milliseconds that a page may take to be what it is to be."""

STYLE = re.compile(r"Applying inline style violates the following Content Security Policy directive")
"""Plotly sets the style of its maps once; the policy refuses it, and no chart of the board is a map."""


def executable() -> str | None:
    """The Chromium of this machine."""
    return os.environ.get("TRUING_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One for all tests of this folder, closed behind the last: Playwright keeps a loop in its thread."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def get(self) -> Browser:
        """The browser, started by whoever asks first."""
        if self._browser is None:
            result = executable()
            if result is None:
                pytest.fail(NONE, pytrace=False)
            expect.set_options(timeout=TIMEOUT_MS)
            self._playwright = sync_playwright().start()
            flags = [*(f"--disable-{each}" for each in ARGS), "--no-first-run"]
            self._browser = self._playwright.chromium.launch(executable_path=result, args=flags)
        return self._browser

    def close(self) -> None:
        """Let it go."""
        if self._browser is not None and self._playwright is not None:
            self._browser.close()
            self._playwright.stop()
        self._playwright = self._browser = None


CHROMIUM = Chromium()


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[str]:
    """The board over a folder, in a thread of its own: its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app(Board(folder), **options), log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)


@dataclass
class Visit:
    """A page of the board, and what it did that no page may do."""

    page: Page
    home: str  # where every request has to go
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"page error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("popup", lambda popup: self.wrong.append(f"popup: {popup.url}"))
        self.page.on("request", self._request)

    def go(self, view: str = "", wait: str | None = None) -> Page:
        """Open a view, as whoever follows a link does, and wait until it is there."""
        if self.page.url == self.home + view:
            self.page.reload()
        else:
            self.page.evaluate("document.querySelector('main')?.removeAttribute('data-page')")
            self.page.goto(self.home + view)
        name = view.removeprefix("#/").partition("?")[0] or "runs"
        self.page.wait_for_selector(wait or f'main[data-page="{name}"]')
        return self.page

    def _said(self, message: Any) -> None:
        if message.type == "error" and not STYLE.match(message.text):
            self.wrong.append(f"console: {message.text} ({message.location})")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.shut_down()

    def _request(self, request: Any) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.wrong.append(f"request: {request.url}")


@contextmanager
def visiting(home: str, **options: Any) -> Iterator[Visit]:
    """A page in a profile of its own, on which nothing may have gone wrong in the end."""
    chosen = {"viewport": {"width": 1366, "height": 768}, "color_scheme": "light", **options}
    context = CHROMIUM.get().new_context(**chosen)
    try:
        made = Visit(context.new_page(), home)
        yield made
    finally:
        context.close()
    assert made.wrong == []


def scroll(page: Page) -> None:
    """Go down the page as a person does, and back to its top."""
    for place in (*range(0, page.evaluate("document.documentElement.scrollHeight"), 600), 0):
        page.evaluate(
            "(y) => new Promise((done) => { scrollTo(0, y);"
            " requestAnimationFrame(() => requestAnimationFrame(done)); })",
            place,
        )


DRAWN = """() => {
  const charts = [...document.querySelectorAll("figure.chart[aria-label]")];
  return charts.length && charts.every((each) => each.dataset.drawn && each.querySelector(".plot").data);
}"""

TOLD = """() => {
  const list = (each) => each && Array.from(each);
  const error = (each) => each && { array: list(each.array), arrayminus: list(each.arrayminus) };
  const trace = (each) => ({
    name: each.name, x: list(each.x), y: list(each.y), mode: each.mode, error: error(each.error_y) });
  const shape = ({ x0, x1, y0, y1, xref, yref }) => ({ x0, x1, y0, y1, xref, yref });
  const chart = (each, { data, layout }) => [each.getAttribute("aria-label"), {
    names: [...each.querySelectorAll(".legend span")].map((one) => one.title),
    traces: data.map(trace), shapes: (layout.shapes || []).map(shape),
    labels: (layout.annotations || []).map((one) => one.text), log: layout.yaxis.type === "log",
  }];
  const charts = [...document.querySelectorAll("figure.chart[aria-label]")];
  return Object.fromEntries(charts.map((each) => chart(each, each.querySelector(".plot"))));
}"""


def draw_all(page: Page) -> dict[str, dict[str, Any]]:
    """Scroll to every chart; then what Plotly holds of each, by the chart's title."""
    scroll(page)
    page.wait_for_function(DRAWN)
    return page.evaluate(TOLD)
