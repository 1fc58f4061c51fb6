"""A cache of a judge's replies on disk: the same request has the same reply in every run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from truing.errors import RecipeError

BUSY_TIMEOUT = 60.0
"""Seconds to wait for another process that writes."""


class ReplyCache:
    """Replies by key, in a SQLite file that threads and processes may share."""

    def __init__(self, path: Path) -> None:
        """Create the file, or open an existing one.

        Raises:
            RecipeError: The path is not a SQLite file, or cannot be written.
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
                "the cache of the judge's replies cannot be opened",
                got=f"{path}: {error}",
                expected="a SQLite file, or a writable path",
                remedy="set another judge.cache, or move the existing file",
            ) from error

    def get(self, key: str) -> str | None:
        """Return the cached reply, or None."""
        with closing(self._open()) as db:
            row = db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def add(self, key: str, request: str, reply: str) -> str:
        """Cache a reply, and return the cached one: the first of two concurrent requests."""
        with closing(self._open()) as db, db:
            db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, request, reply))
            return db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()[0]

    def _open(self) -> sqlite3.Connection:
        """Return a connection for the caller's thread."""
        return sqlite3.connect(self.path, timeout=BUSY_TIMEOUT)
