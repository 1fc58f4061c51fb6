"""Listeners of a run: trackers, which plot its numbers, and alerts, which call a command or webhook."""

from truing.trackers.dispatch import EventDispatcher, check_trackers, open_trackers

__all__ = ["EventDispatcher", "check_trackers", "open_trackers"]
