"""Spelling of texts in llguidance grammars (Lark dialect)."""

import json
import re
from collections.abc import Mapping


class LarkLiterals:
    """Spells fixed texts of a format.

    An added token is written by its id: its text would match its letters, which the model does not write.
    """

    def __init__(self, added: Mapping[str, int]) -> None:
        """``added``: the text and id of each added token of the tokenizer."""
        self._added = added
        longest_first = sorted(added, key=len, reverse=True)
        self._cut = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if added else "(?!)")

    def __call__(self, text: str) -> str:
        """Return the text as an expression: quoted text, and ``<[id]>`` for each added token."""
        parts = [part for part in self._cut.split(text) if part]
        return " ".join(f"<[{self._added[p]}]>" if p in self._added else lark_string(p) for p in parts)

    def head(self, text: str) -> tuple[str, str]:
        """Return the text before the first added token, and the rest."""
        cut = self._cut.search(text)
        return (text[: cut.start()], text[cut.start() :]) if cut else (text, "")


def lark_string(text: str) -> str:
    """Return a text in Lark's quotes, which are JSON's."""
    return json.dumps(text, ensure_ascii=False)


def lark_regex(text: str) -> str:
    """Return a text as a regular expression of Lark, between its slashes."""
    return re.sub(r"([\\.+*?()|\[\]{}^$/&~#-])", r"\\\1", text).replace("\n", r"\n")
