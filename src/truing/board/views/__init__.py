"""Views of the board: pure functions from what was read to JSON."""
