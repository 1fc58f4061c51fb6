"""AGENTS.md: its paths and names exist, its map has every room in the order of imports, it is short."""

import re
from pathlib import Path

import pytest
from test_imports import MAY_IMPORT

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "truing"
PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
ROOMS = dict(re.findall(r"^\| `([\w/.]+)` \| (.+) \|$", SECTIONS["The rooms"], re.MULTILINE))
CHANGES = dict(
    re.findall(r"^- \*\*A new (.+?)\*\*: (.+(?:\n  .+)*)$", SECTIONS["Which files to touch"], re.MULTILINE)
)

PATH = re.compile(r"(?<![\w./-])[\w.-]*[\w-]/[\w./-]*|[\w.-]+\.(?:py|md|toml|txt)\b")
ELSEWHERE = re.compile(r"\.venv/|\.\./shared/")
"""What `make install` makes, and the published files."""


def paths(text: str) -> list[str]:
    """The paths between backticks."""
    names = (name for span in re.findall(r"`([^`\n]+)`", text) for name in PATH.findall(span))
    return sorted({name for name in names if not ELSEWHERE.match(name)})


def is_file_or_folder(name: str, homes: list[Path]) -> bool:
    """Whether it is in one of the folders; a folder's name ends in a slash or may."""
    return any((home / name).exists() for home in homes)


@pytest.mark.parametrize("name", paths(re.sub(r"^\| `[\w/.]+` \| .+$", "", PAGE, flags=re.MULTILINE)))
def test_a_path_exists(name):
    assert is_file_or_folder(name, [ROOT, SOURCE])


@pytest.mark.parametrize("room", ROOMS)
def test_a_path_in_the_line_of_a_room_is_in_that_room(room):
    for name in paths(ROOMS[room]):
        assert is_file_or_folder(name, [SOURCE / room]), name


def test_the_map_has_every_room_in_the_order_of_imports():
    rooms = [name for name in MAY_IMPORT if not name.startswith("__")]
    assert [room.strip("/").removesuffix(".py") for room in ROOMS] == rooms
    assert all((SOURCE / room).exists() for room in ROOMS)


def test_a_name_is_in_the_file_that_the_page_gives_for_it():
    pairs = [(name, path) for name, path in re.findall(r"`(\w+)` in `([\w/]+\.py)`", PAGE)]
    pairs += [(name, path) for path, name in re.findall(r"`([\w/]+\.py)`[ ,]*\(?`(\w+)`", PAGE)]
    assert len(pairs) > 8
    for name, path in pairs:
        home = SOURCE if (SOURCE / path).exists() else ROOT
        assert re.search(rf"\b{name}\b", (home / path).read_text(encoding="utf-8")), f"{name} in {path}"


@pytest.mark.parametrize(
    "thing",
    ["objective", "metric", "rule", "environment", "reward", "recipe key", "CLI command", "sampling engine"],
)
def test_a_common_change_has_its_files(thing):
    assert len(paths(CHANGES[thing])) >= 3


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 120
