"""Programs of the user's own as an environment: each rollout runs one, which calls the policy over HTTP."""

from truing.envs.program.env import Program, ProgramDataset

__all__ = ["Program", "ProgramDataset"]
