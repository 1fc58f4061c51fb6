"""Metrics: definitions, and computation from the samples of a step."""
