"""Rewards: graders of text, judges, and the one place that calls reward functions."""

from truing.rewards.by_name import rewards_by_name
from truing.rewards.grade import (
    GradeResult,
    NotApplicable,
    PerTurn,
    RewardFn,
    Rewards,
    grade,
    prepare,
    reward_range,
    takes_workspace,
)
from truing.rewards.number_match import final_number, number_match
from truing.rewards.numbers import read_number
from truing.rewards.text_match import (
    AnswerFormat,
    exact_match,
    extract_answer,
    f1,
    follows_format,
    format_answer,
    normalize_answer,
    plain_text,
    without_reasoning,
)

__all__ = [
    "AnswerFormat",
    "GradeResult",
    "NotApplicable",
    "PerTurn",
    "RewardFn",
    "Rewards",
    "exact_match",
    "extract_answer",
    "f1",
    "final_number",
    "follows_format",
    "format_answer",
    "grade",
    "normalize_answer",
    "number_match",
    "plain_text",
    "prepare",
    "read_number",
    "reward_range",
    "rewards_by_name",
    "takes_workspace",
    "without_reasoning",
]
