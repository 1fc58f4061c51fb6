"""A panel that stands below the lines of a terminal."""

from rich.console import Console, RenderableType
from rich.live import Live

from truing.terminal.reader import Screen
from truing.terminal.render import render_panel


def has_terminal(console: Console) -> bool:
    """Whether what was written can be written over; that colours are asked for makes no terminal."""
    return console.is_interactive and console.file.isatty()


class LiveRegion:
    """Drawn anew where it stands, when there is something new, and never in between."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._facts: Screen | None = None
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._drawn)

    def show(self, facts: Screen) -> None:
        """Draw these facts."""
        self._facts = facts
        if not self._live.is_started:
            self._live.start()
        self._live.refresh()

    def stop(self) -> None:
        """Let it stand as it is; what is printed from now on comes below."""
        self._live.stop()

    def _drawn(self) -> RenderableType:
        return "" if self._facts is None else render_panel(self._facts, self.console.width)
