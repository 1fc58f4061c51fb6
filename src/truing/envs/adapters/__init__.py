"""Environments of other systems, run as they are: MCP servers, verifiers tasksets, OpenEnv servers."""
