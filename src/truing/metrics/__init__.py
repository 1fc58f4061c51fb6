"""Metrics: definitions, and computation from the rows of an update."""
