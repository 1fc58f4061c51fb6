"""The office: messages, mail, calendar, files and contacts. docs/workspace.md tells of it."""

from truing.envs.workspace.env import Workspace

__all__ = ["Workspace"]
