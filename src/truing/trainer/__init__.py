"""The training loop: a run from start to end, its events and its record."""
