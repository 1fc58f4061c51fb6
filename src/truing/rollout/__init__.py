"""Rollouts: tasks answered and graded, and flattened into samples."""
