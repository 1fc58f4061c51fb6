"""Runs whose reward does not go up for a known reason, and what `truing why` says of each."""
