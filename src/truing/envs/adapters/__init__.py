"""Environments of other systems, unchanged: MCP servers, verifiers tasksets, OpenEnv servers."""
