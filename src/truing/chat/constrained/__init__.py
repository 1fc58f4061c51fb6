"""Constrained decoding: the grammar of tool calls, and which ids may come next."""
