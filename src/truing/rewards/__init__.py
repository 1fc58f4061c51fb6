"""Rewards: pure graders of text, and the one place where reward functions are called."""

from truing.rewards.grade import Graded, PerTurn, RewardFn, Rewards, grade, reach
from truing.rewards.text import (
    AnswerFormat,
    after_thought,
    exact_match,
    extract_answer,
    f1,
    follows_format,
    normalize_answer,
    write_answer,
)

__all__ = [
    "AnswerFormat",
    "Graded",
    "PerTurn",
    "RewardFn",
    "Rewards",
    "after_thought",
    "exact_match",
    "extract_answer",
    "f1",
    "follows_format",
    "grade",
    "normalize_answer",
    "reach",
    "write_answer",
]
