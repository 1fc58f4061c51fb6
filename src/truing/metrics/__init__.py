"""Metrics: their definitions, and their computation from the rows of an update."""
