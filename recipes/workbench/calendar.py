"""The calendar of WorkBench."""

from datetime import datetime, timedelta

from truing.envs.tools import ToolError

from .tables import Row, Table, contains, moment

SHOWN = 5
"""A search shows so many events, as the tool's description says."""


class Calendar:
    """Five tools over the events."""

    def __init__(self, events: Table[str]) -> None:
        self.events = events

    def get_event_information_by_id(self, event_id: str, field: str) -> Row:
        """One field of an event."""
        return self.events.field(event_id, field)

    def search_events(
        self, query: str = "", time_min: str | None = None, time_max: str | None = None
    ) -> list[Row]:
        """The first events with a text in name or address, that overlap the time."""
        after = moment(time_min) if time_min else None
        before = moment(time_max) if time_max else None

        def keep(event: Row) -> bool:
            named = contains(event["event_name"], query) or contains(event["participant_email"], query)
            return named and _overlaps(event, after, before)

        return self.events.search(keep)[:SHOWN]

    def create_event(self, event_name: str, participant_email: str, event_start: str, duration: str) -> str:
        """Add an event."""
        event_id = self.events.next_id().zfill(8)
        event = {
            "event_id": event_id,
            "event_name": event_name,
            "participant_email": participant_email.lower(),
            "event_start": event_start,
            "duration": duration,
        }
        self.events.add(event_id, event)
        return event_id

    def delete_event(self, event_id: str) -> str:
        """Remove an event."""
        self.events.remove(event_id)
        return "Event deleted successfully."

    def update_event(self, event_id: str, field: str, new_value: str) -> str:
        """Set one field of an event."""
        self.events.change(event_id, field, new_value.lower() if field == "participant_email" else new_value)
        return "Event updated successfully."


def _overlaps(event: Row, after: datetime | None, before: datetime | None) -> bool:
    """Whether an event lies in a range, its borders included; without a range, all do."""
    if after is None and before is None:
        return True
    try:
        starts = moment(event["event_start"])
        ends = starts + timedelta(minutes=int(event["duration"]))
    except (ToolError, ValueError, OverflowError):  # WorkBench's calendar takes any text for a time
        return False
    return (after is None or ends >= after) and (before is None or starts <= before)
