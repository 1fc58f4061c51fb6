"""BFCL: function calls in one turn, and in conversations whose calls change state."""

from truing.envs.bfcl.env import BFCL

__all__ = ["BFCL"]
