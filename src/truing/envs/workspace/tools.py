"""The tools of the office. The answer to a wrong call lists the valid values."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from truing.envs.tools import Tool, ToolEpisode, ToolError, tool
from truing.envs.workspace.state import DAYS, ME, MY_ADDRESS, Event, Mail, Office, Post
from truing.types.message import ToolSpec
from truing.utils.format import did_you_mean

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")


class OfficeTools:
    """The tools: every public method is one, and its docstring is its description for the model."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def send_slack_message(self, to: str, text: str) -> str:
        """Send a Slack message to a person, by name, or to a channel such as #general."""
        self._check_place(to)
        self._office.slack.append(Post(place=to, sender=ME, text=text))
        return f"Sent to {to}."

    def read_slack_messages(self, place: str) -> list[dict[str, str]]:
        """Read what was written in a channel or to a person, oldest first."""
        self._check_place(place)
        return [
            {"sender": post.sender, "text": post.text} for post in self._office.slack if post.place == place
        ]

    def search_contacts(self, query: str) -> list[dict[str, str]]:
        """Find people whose name contains the query, with their e-mail addresses."""
        contacts = self._office.contacts
        matches = [
            {"name": name, "email": email}
            for name, email in contacts.items()
            if query.lower() in name.lower()
        ]
        if not matches:
            raise _unknown("contact", query, contacts)
        return matches

    def read_inbox(self) -> list[dict[str, str]]:
        """List the e-mails that I received, oldest first: id, sender and subject."""
        return [
            {"email_id": email_id, "sender": mail.sender, "subject": mail.subject}
            for email_id, mail in self._inbox().items()
        ]

    def read_email(self, email_id: str) -> dict[str, str]:
        """Read one e-mail of the inbox."""
        inbox = self._inbox()
        if email_id not in inbox:
            raise _unknown("e-mail", email_id, inbox)
        return inbox[email_id].model_dump()

    def send_email(self, to: str, subject: str, body: str) -> str:
        """Send an e-mail to an address."""
        if not _ADDRESS.fullmatch(to):
            raise ToolError(f"{to!r} is not an e-mail address; search_contacts finds a person's")
        self._office.add_mail(Mail(sender=MY_ADDRESS, to=to, subject=subject, body=body))
        return f"Sent to {to}."

    def list_events(self, day: str) -> list[dict[str, Any]]:
        """List the calendar events of a weekday, such as Monday."""
        _check_day(day)
        return [
            {"event_id": event_id, **event.model_dump(exclude={"day"})}
            for event_id, event in self._office.calendar.items()
            if event.day == day
        ]

    def create_event(self, title: str, day: str, start: str, people: list[str]) -> str:
        """Put an event on the calendar: weekday, start as HH:MM, and the names of who else comes."""
        _check_day(day)
        _check_time(start)
        for person in people:
            if person not in self._office.contacts:
                raise _unknown("contact", person, self._office.contacts)
        event_id = self._office.add_event(Event(title=title, day=day, start=start, people=tuple(people)))
        return f"Created {event_id}."

    def move_event(self, event_id: str, day: str, start: str) -> str:
        """Move an event to another weekday or start (HH:MM)."""
        self._check_event(event_id)
        _check_day(day)
        _check_time(start)
        calendar = self._office.calendar
        calendar[event_id] = calendar[event_id].model_copy(update={"day": day, "start": start})
        return f"Moved {event_id} to {day} {start}."

    def cancel_event(self, event_id: str) -> str:
        """Take an event off the calendar."""
        self._check_event(event_id)
        del self._office.calendar[event_id]
        return f"Cancelled {event_id}."

    def list_files(self) -> list[str]:
        """List the paths of all files."""
        return list(self._office.files)

    def read_file(self, path: str) -> str:
        """Read a file."""
        if path not in self._office.files:
            raise _unknown("file", path, self._office.files)
        return self._office.files[path]

    def write_file(self, path: str, text: str) -> str:
        """Write a file; what it held before is lost."""
        self._office.files[path] = text
        return f"Wrote {path}."

    def _inbox(self) -> dict[str, Mail]:
        """What was sent to me."""
        return {name: mail for name, mail in self._office.mail.items() if mail.to == MY_ADDRESS}

    def _check_place(self, place: str) -> None:
        """Reject to write where nobody reads."""
        if place not in self._office.channels and place not in self._office.contacts:
            raise _unknown("person or channel", place, [*self._office.channels, *self._office.contacts])

    def _check_event(self, event_id: str) -> None:
        """Reject an id that the calendar does not have."""
        if event_id not in self._office.calendar:
            raise _unknown("event", event_id, self._office.calendar)


TOOLS: dict[str, ToolSpec] = {
    name: tool(getattr(OfficeTools(Office()), name)).spec
    for name in vars(OfficeTools)
    if not name.startswith("_")
}
"""name → description for the model, in the order of prompts."""


def open_office(snapshot: Mapping[str, Any], names: Iterable[str]) -> ToolEpisode:
    """An episode in its own office, with the named tools."""
    office = Office(**snapshot)
    tools = OfficeTools(office)
    return ToolEpisode([Tool(TOOLS[name], getattr(tools, name)) for name in names], office.snapshot)


def _check_day(day: str) -> None:
    """Reject what is not a weekday."""
    if day not in DAYS:
        raise _unknown("working day", day, DAYS)


def _check_time(start: str) -> None:
    """Reject what is not a time of day."""
    if not _TIME.fullmatch(start):
        raise ToolError(f"{start!r} is not a time; write HH:MM, such as 09:30")


def _unknown(what: str, name: str, valid: Iterable[str]) -> ToolError:
    """Return the error for an unknown name: the nearest one, and all valid ones."""
    known = list(valid)
    there_are = f"there are: {', '.join(known)}" if known else "there are none"
    return ToolError(
        " ".join(filter(None, [f"there is no {what} {name!r};", did_you_mean(name, known), there_are]))
    )
