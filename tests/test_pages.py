"""Pages are whole, with no merge left half done, and the commands that pages and messages name exist."""

import re

from folders import ROOT

from truing.cli import PANELS

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.toml")]
SOURCES = list((ROOT / "src").rglob("*.py"))
PAST = {"CHANGELOG.md", "LOG.md", "decisions"}
"""Pages that name commands of earlier versions."""

CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
COMMAND = re.compile(r"`truing ([a-z]+)\b")


def test_no_page_has_conflict_markers():
    assert len(PAGES) > 50
    assert CONFLICT.search("a\n=======\nb")
    assert not [page for page in PAGES if CONFLICT.search(page.read_text(encoding="utf-8"))]


def test_commands_that_pages_and_messages_name_exist():
    commands = {name for panel in PANELS.values() for name in panel}
    current = [page for page in PAGES if not PAST & set(page.relative_to(ROOT).parts)]
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (*current, *SOURCES)
        for name in COMMAND.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert [each for each in sorted(named) if each[1] not in commands] == []


def test_the_index_has_every_decision():
    decisions = ROOT / "docs/decisions"
    index = (decisions / "README.md").read_text(encoding="utf-8")
    pages = [page for page in decisions.glob("*.md") if page.name != "README.md"]
    for page in pages:
        heads = re.findall(r"^## (\d+\. .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        _, _, listed = index.partition(f"]({page.name})\n")
        assert re.findall(r"^- (.*)$", listed.partition("\n## ")[0], re.MULTILINE) == sorted(
            heads, key=lambda head: int(head.partition(".")[0])
        )
