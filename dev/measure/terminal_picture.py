r"""Draw what a command prints as a picture of a terminal: docs/images/demo.svg is what `make demo` prints.

    .venv/bin/truing train recipes/demo.toml --out runs/demo > demo.txt 2>&1
    python -m dev.measure.terminal_picture 'make demo' demo.txt > docs/images/demo.svg \
        --hide '^  \w+ 2: first tokens:\n(    .*\n)+' '^    0/\w+/0/1/.*\n(    [^a].*\n)+'

An ellipsis ends lines that are wider than the picture, and stands for the lines that are hidden.
"""

import argparse
import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 118
"""Columns of the picture."""


def picture(command: str, output: str, hidden: Sequence[str]) -> str:
    """Return the SVG of a terminal in which ``command`` printed ``output``, without matches of ``hidden``."""
    for pattern in hidden:
        output = re.sub(pattern, "    …\n", output, flags=re.MULTILINE)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ {command}", style="bold"))
    for line in output.splitlines():
        console.print(Text(line), no_wrap=True, overflow="ellipsis")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=command), flags=re.DOTALL)
    return svg.replace(
        "Fira Code", "ui-monospace, Menlo, Consolas"
    )  # fonts of the reader, none from a server


def main() -> None:
    """Print the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("command", help="what the first line says was typed")
    parser.add_argument("output", type=Path, help="a file of what it printed")
    parser.add_argument("--hide", nargs="*", default=(), metavar="REGEX", help="what is not drawn")
    arguments = parser.parse_args()
    print(picture(arguments.command, arguments.output.read_text(), arguments.hide))


if __name__ == "__main__":
    main()
