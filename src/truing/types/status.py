"""How turns and rollouts end."""

from enum import StrEnum


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"  # the policy sampled a stop id
    LENGTH = "length"  # max_new_tokens was reached first
    TOOL = "tool"  # the turn ended in a tool call
    ERROR = "error"  # the sampler or the environment failed
    DEMO = "demo"  # a demonstration, not sampled
    UNKNOWN = ""  # of another trainer


class Status(StrEnum):
    """How a rollout ended. An error is recorded as such and is never a reward of 0."""

    DONE = "done"
    TRUNCATED = "truncated"
    ERROR = "error"


class EndedBy(StrEnum):
    """What ended a rollout."""

    ENVIRONMENT = "environment"  # the episode ended
    LENGTH = "length"  # a turn reached max_new_tokens
    TURNS = "turns"  # max_turns
    CONTEXT = "context"  # the next turn would not fit in the model's context
    TIME = "time"  # the time limit of an episode
    ERROR = "error"  # the environment, a tool or a grader failed
