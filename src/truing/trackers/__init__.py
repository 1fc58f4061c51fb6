"""Who follows a run beside its record: trackers, which plot it, and alerts, which call somebody."""

from truing.trackers.dispatch import EventDispatcher, check_trackers, open_trackers

__all__ = ["EventDispatcher", "check_trackers", "open_trackers"]
