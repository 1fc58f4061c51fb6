"""Rewards: pure graders of text, and the one place where reward functions are called."""

from truing.rewards.grade import Graded, PerTurn, RewardFn, Rewards, grade, reach
from truing.rewards.number_match import final_number, number_match
from truing.rewards.numbers import read_number
from truing.rewards.text_match import (
    AnswerFormat,
    after_thought,
    exact_match,
    extract_answer,
    f1,
    follows_format,
    normalize_answer,
    plain_text,
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
    "final_number",
    "follows_format",
    "grade",
    "normalize_answer",
    "number_match",
    "plain_text",
    "reach",
    "read_number",
    "write_answer",
]
