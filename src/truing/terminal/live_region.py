"""A panel below the lines of a terminal."""

from rich.console import Console, RenderableType
from rich.live import Live

from truing.terminal.reader import Screen
from truing.terminal.render import render_panel


def has_terminal(console: Console) -> bool:
    """Return whether output can be overwritten; forced colours do not make a terminal."""
    return console.is_interactive and console.file.isatty()


class LiveRegion:
    """Redraws the panel in place when ``show`` is called, and at no other time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._facts: Screen | None = None
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._render)

    def show(self, facts: Screen) -> None:
        """Draw the facts."""
        self._facts = facts
        if not self._live.is_started:
            self._live.start()
        self._live.refresh()

    def stop(self) -> None:
        """Leave the panel as it is; later output appears below."""
        self._live.stop()

    def _render(self) -> RenderableType:
        return "" if self._facts is None else render_panel(self._facts, self.console.width)
