"""Rollouts of programs: their calls through the endpoint become conversations, and these become samples."""
