"""Facts that an update records for the rules."""
