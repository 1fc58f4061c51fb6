"""Rollouts: tasks attempted and graded, and flattened into samples."""
