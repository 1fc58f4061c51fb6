"""How turns and rollouts end."""

from enum import StrEnum


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"  # a stop id was drawn
    LENGTH = "length"  # max_new_tokens was reached first
    TOOL = "tool"  # the turn ended in a tool call
    ERROR = "error"  # the sampler or the environment failed
    DEMO = "demo"  # a demonstration: nobody sampled it


class Status(StrEnum):
    """What became of a rollout. An error is recorded as such and is never a reward of 0."""

    DONE = "done"
    TRUNCATED = "truncated"
    ERROR = "error"


class EndedBy(StrEnum):
    """What ended a rollout."""

    ENVIRONMENT = "world"  # the world had nothing more to say
    LENGTH = "length"  # a turn reached max_new_tokens
    TURNS = "turns"  # max_turns
    CONTEXT = "context"  # the next turn would not fit the model's context
    TIME = "time"  # the time limit of an episode
    ERROR = "error"  # the world, a tool or a grader failed
