"""A collection of paragraphs with BM25 search."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from truing.envs.optional_packages import import_optional
from truing.errors import DataError

bm25s = import_optional("bm25s", "search")


@dataclass(frozen=True)
class Passage:
    """A paragraph with its title."""

    title: str
    text: str

    @property
    def key(self) -> str:
        """The passage's id, from its content alone."""
        return f"{self.title}#{hashlib.sha256(self.full_text.encode()).hexdigest()[:8]}"

    @property
    def full_text(self) -> str:
        """Title and text, as indexed."""
        return f"{self.title}\n{self.text}"

    def truncated(self, chars: int) -> str:
        """Return the passage with at most ``chars`` characters of its text, and how many were cut."""
        lost = len(self.text) - chars
        return f"{self.title}: {self.text[:chars]}" + (f" [{lost} characters cut]" if lost > 0 else "")


class Bm25Index:
    """Distinct passages in the order given, and an index of the words of their titles and texts."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(dict.fromkeys(passages))
        words = _words([p.full_text for p in self.passages])
        if not any(words):
            raise DataError(
                "the passages hold no word to search for",
                got=f"{len(self.passages)} passages",
                expected="words other than English stop words",
            )
        self._index = bm25s.BM25(backend="numpy")
        self._index.index(words, show_progress=False)

    def search(self, query: str, count: int) -> list[Passage]:
        """Return at most ``count`` passages that share words with the query, best first.

        Repeated words of a query count once. Equally good passages keep their order.
        """
        words = [word for word in dict.fromkeys(_words([query])[0]) if word in self._index.vocab_dict]
        if not words:
            return []
        scores = self._index.get_scores(words)
        best = np.argsort(-scores, kind="stable")[:count]
        return [self.passages[i] for i in best if scores[i] > 0]


def _words(texts: list[str]) -> list[list[str]]:
    """Return the words of each text in lower case, without English stop words; "Vitamin C" has two."""
    return bm25s.tokenize(texts, token_pattern=r"\w+", stopwords="en", return_ids=False, show_progress=False)
