"""Who follows a run beside its record: trackers, which plot it, and alerts, which call somebody."""

from truing.trackers.dispatch import Followers, check_followers, open_followers

__all__ = ["Followers", "check_followers", "open_followers"]
