"""Measurements of an update that the doctor's rules evaluate."""
