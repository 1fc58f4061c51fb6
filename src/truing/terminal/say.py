"""Prints lines as they are: text of a run is no markup, and its control characters are escaped."""

from collections.abc import Iterable

from rich.console import Console

from truing.utils.format import escape_lines


def say(text: str, style: str = "", *, err: bool = False) -> None:
    """Print a text on stdout, or on stderr."""
    say_all([(text, style)], err=err)


def say_all(lines: Iterable[tuple[str, str]], *, err: bool = False) -> None:
    """Print lines, each with its style."""
    console = Console(stderr=err, highlight=False)
    for text, style in lines:
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)
