"""What a judge said, on disk: the same request has the same reply in every run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from truing.errors import RecipeError

BUSY_TIMEOUT = 60.0
"""Seconds to wait for another process that writes."""


class ReplyCache:
    """Replies by key, in a SQLite file that threads and processes may share."""

    def __init__(self, path: Path) -> None:
        """Make the file, or open the one that is there.

        Raises:
            RecipeError: There is another thing in its place, or it cannot be written.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as db, db:
                db.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, request TEXT, reply TEXT)"
                )
        except (OSError, sqlite3.Error) as error:
            raise RecipeError(
                "the judge's replies cannot be kept",
                got=f"{path}: {error}",
                expected="a SQLite file, or a place for one",
                remedy="give another judge.cache, or move what is there away",
            ) from error

    def get(self, key: str) -> str | None:
        """The reply that is kept, or None."""
        with closing(self._open()) as db:
            row = db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def add(self, key: str, request: str, reply: str) -> str:
        """Keep a reply, and give the one that is kept: the first, where two asked at once."""
        with closing(self._open()) as db, db:
            db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, request, reply))
            return db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()[0]

    def _open(self) -> sqlite3.Connection:
        """A connection of the caller's thread."""
        return sqlite3.connect(self.path, timeout=BUSY_TIMEOUT)
