"""Facts that a step records for the rules."""
