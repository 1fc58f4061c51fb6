"""Keyed random numbers, seconds by phase, memory, text, JSON lines, atomic files."""
