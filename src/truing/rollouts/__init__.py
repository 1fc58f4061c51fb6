"""Rollouts: the sampler, tasks attempted and graded, and the samples of a step."""
