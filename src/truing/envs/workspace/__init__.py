"""The office: messages, mail, calendar, files and contacts. docs/workspace.md describes it."""

from truing.envs.workspace.env import Workspace

__all__ = ["Workspace"]
