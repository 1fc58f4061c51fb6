"""Measurements beside an update, for the rules of the doctor to judge."""
