"""Verdicts from pairs and checks."""
