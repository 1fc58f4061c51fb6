"""Measurements of a step that the doctor's rules evaluate."""
