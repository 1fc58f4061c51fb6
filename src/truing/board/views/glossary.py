"""The glossary of the board: the tables of docs/glossary.md, which the package has too."""

import re
from importlib.resources import files
from typing import Any

LINK, MARKS = re.compile(r"\[([^]]+)\]\([^)]+\)"), re.compile(r"[`*]")
"""Markdown that the board shows as plain text."""


def glossary_json() -> list[dict[str, Any]]:
    """Return each topic with its terms; those that are defined together share a meaning."""
    page = (files("truing") / "docs" / "glossary.md").read_text(encoding="utf-8")
    plain = MARKS.sub("", LINK.sub(r"\1", page))
    return [_topic(section) for section in plain.split("\n## ")[1:]]


def _topic(section: str) -> dict[str, Any]:
    title, *lines = section.splitlines()
    _head, _rule, *rows = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("|")]
    return {
        "title": title,
        "words": [{"names": names.split(", "), "means": means} for names, means in rows],
    }
