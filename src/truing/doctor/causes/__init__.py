"""Causes of a reward that does not go up: one file each, judged by what is on record."""
