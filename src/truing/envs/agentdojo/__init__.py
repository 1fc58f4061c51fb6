"""AgentDojo: tasks for an assistant with mail, calendar, files, chat, travel and banking tools."""

from truing.envs.agentdojo.env import AgentDojo

__all__ = ["AgentDojo"]
