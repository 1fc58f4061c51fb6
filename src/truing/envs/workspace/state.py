"""The office as data: contacts, Slack, mail, calendar and files."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from truing.config import FrozenModel
from truing.utils.rng import seed_of

ME = "me"
"""The policy's own name: the sender of its messages."""

MY_ADDRESS = "me@office.example"
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


class Post(FrozenModel):
    """One Slack message."""

    place: str  # a channel, or the person it was written to
    sender: str
    text: str


class Mail(FrozenModel):
    """One e-mail; those to MY_ADDRESS are the inbox."""

    sender: str  # an address
    to: str  # an address
    subject: str
    body: str


class Event(FrozenModel):
    """One entry of the calendar."""

    title: str
    day: str
    start: str
    people: tuple[str, ...] = ()


class Office(BaseModel):
    """Everything that the tools can read and change."""

    model_config = ConfigDict(extra="forbid")

    contacts: dict[str, str] = Field(default_factory=dict)  # name → address
    channels: list[str] = Field(default_factory=list)
    slack: list[Post] = Field(default_factory=list)  # oldest first
    mail: dict[str, Mail] = Field(default_factory=dict)  # id → mail, oldest first
    calendar: dict[str, Event] = Field(default_factory=dict)  # id → event
    files: dict[str, str] = Field(default_factory=dict)  # path → text

    def add_mail(self, mail: Mail) -> str:
        """Deliver a mail; return its id."""
        return _add("m", mail, self.mail)

    def add_event(self, event: Event) -> str:
        """Enter an event; return its id."""
        return _add("e", event, self.calendar)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON data; ``Office(**snapshot)`` is the office again."""
        return self.model_dump(mode="json")


def changes(start: Mapping[str, Any], end: Mapping[str, Any]) -> Counter[str]:
    """Return the entries added and removed between two snapshots, with counts.

    >>> changes({"files": {"a": "x"}}, {"files": {"a": "y"}})
    Counter({'added files ["a", "y"]': 1, 'removed files ["a", "x"]': 1})
    """
    before, after = Counter(_facts(start)), Counter(_facts(end))
    added = {f"added {fact}": count for fact, count in (after - before).items()}
    removed = {f"removed {fact}": count for fact, count in (before - after).items()}
    return Counter(added | removed)


def _facts(snapshot: Mapping[str, Any]) -> Iterator[str]:
    """Yield every entry of every part of a snapshot, as text."""
    for part, content in snapshot.items():
        for entry in content.items() if isinstance(content, dict) else content:
            yield f"{part} {json.dumps(entry)}"


def _add(letter: str, entry: BaseModel, entries: dict[str, Any]) -> str:
    """Store an entry under an id from its content and return the id.

    An id cannot be guessed from other ids: a policy has to look it up.
    """
    number = seed_of(entry.model_dump())
    while (name := f"{letter}{number % 1000:03d}") in entries:
        number += 1
    entries[name] = entry
    return name
