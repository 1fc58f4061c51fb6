"""Graders of an answer given as text.

Normalization, F1 and exact match follow the SQuAD v1.1 evaluation, so that scores compare with
published ones; where it leaves a case open, the MuSiQue evaluation decides (see ``f1``). One difference:
SQuAD accepts "14" for "1.4" and "5" for "-5", since it strips punctuation. Here, if the right answer is a
number, another number is wrong.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from truing.errors import DataError
from truing.rewards.numbers import normalize_numbers, read_number

AnswerFormat = Literal["line", "tag"]
"""Place of the answer in a response: on its only line, or in a final <answer>…</answer>."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def normalize_answer(text: str) -> str:
    """Return a text in lower case, without punctuation, articles and extra white space, in this order.

    Only ASCII punctuation is removed, and accents stay, as in SQuAD v1.1 (https://arxiv.org/abs/1606.05250).
    Articles are removed after punctuation: ``"A.N. Other"`` becomes ``"other"``. Letters are first composed
    with their accents (NFC), so that two spellings of one text are equal; composed text is not affected.

    >>> normalize_answer("  The Hateful—Eight, a film!")
    'hateful—eight film'
    """
    plain = unicodedata.normalize("NFC", text).lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def plain_text(text: str) -> str:
    """Return ``normalize_answer`` of a text, with distinct numbers kept distinct: 1.4 and 14, -5 and 5.

    >>> plain_text("The -5 of 1,000!")
    'minus5 of 1000'
    """
    return normalize_answer(normalize_numbers(text))


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the normalized prediction equals a normalized answer, else 0.0.

    If an answer is a number, the prediction must also be the same number.
    """
    right = (
        all(plain(prediction) == plain(answer) for plain in _readings(answer)) for answer in _some(answers)
    )
    return float(any(right))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the word overlap with the best matching answer, in [0, 1].

    F1 = 2PR / (P + R), with P = common / predicted words, R = common / answer words; words are those of
    the normalized texts, and a repeated word counts as often as both texts have it. If a text has no words
    left, the result is 1.0 if neither has, else 0.0 (SQuAD v1.1 leaves this open, MuSiQue does so). If the
    answer is a number, another number is not a common word.

    Args:
        prediction: The answer to judge.
        answers: The answer and its aliases, at least one; the highest score counts.
    """
    return max(
        min(_f1(plain(prediction), plain(answer)) for plain in _readings(answer)) for answer in _some(answers)
    )


def _readings(answer: str) -> Sequence[Callable[[str], str]]:
    """Return the normalizations to compare with an answer: SQuAD's, and for a number ``plain_text`` too."""
    return (normalize_answer,) if read_number(answer) is None else (normalize_answer, plain_text)


def _f1(prediction: str, answer: str) -> float:
    """Return F1 of two normalized texts."""
    predicted, expected = prediction.split(), answer.split()
    if not predicted or not expected:
        return float(predicted == expected)
    common = sum((Counter(predicted) & Counter(expected)).values())
    # 2PR / (P + R) with P = common/predicted and R = common/expected, without a division by zero
    return 2 * common / (len(predicted) + len(expected))


def format_answer(answer: str, answer_format: AnswerFormat) -> str:
    """Return a response with ``answer`` in the declared format, and nothing else."""
    return answer if answer_format == "line" else f"<answer>{answer}</answer>"


def without_reasoning(response: str) -> str:
    """Return a response after its reasoning; all of it if it has no ``</think>``."""
    return response.rpartition("</think>")[2]


def extract_answer(response: str, answer_format: AnswerFormat) -> str | None:
    """Return the answer of a response, stripped; None if it has none.

    ``line``: its first line that is not blank. ``tag``: the content of its last complete
    ``<answer>…</answer>``; text before it is ignored. Reasoning up to ``</think>`` is ignored.
    """
    response = without_reasoning(response)
    if answer_format == "line":
        return next((line.strip() for line in response.splitlines() if line.strip()), None)
    tags = _TAG.findall(response)
    return (tags[-1].strip() or None) if tags else None


def follows_format(response: str, answer_format: AnswerFormat) -> bool:
    """Whether a response has exactly one answer, at its end.

    ``line``: exactly one line that is not blank. ``tag``: exactly one ``<answer>…</answer>``, not
    empty, and nothing but white space after it.
    """
    if extract_answer(response, answer_format) is None:
        return False
    response = without_reasoning(response)
    if answer_format == "line":
        return sum(bool(line.strip()) for line in response.splitlines()) == 1
    return response.count("<answer>") == response.count("</answer>") == 1 and response.rstrip().endswith(
        "</answer>"
    )


def _some(answers: Sequence[str]) -> Sequence[str]:
    """Return the answers; raise if there are none, or if they are a bare string."""
    if isinstance(answers, str) or not answers:
        raise DataError("answers must be a sequence of at least one string", got=repr(answers))
    return answers
