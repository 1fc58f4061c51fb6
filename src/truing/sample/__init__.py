"""Samplers: each draws under the sampling contract and records what it drew, as it drew it."""
