"""Pure graders of an answer given as text.

Normalisation, F1 and exact match follow the SQuAD v1.1 evaluation, so that scores compare with
published ones; where it leaves a case open, the MuSiQue evaluation decides (see ``f1``). One thing differs:
SQuAD takes "14" for "1.4" and "5" for "-5", since it strips punctuation. Where the right answer is a number,
another number is not it.
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
"""Where a response holds its answer: on its only line, or in a closing <answer>…</answer>."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space, in this order.

    Only ASCII punctuation goes, and accents stay, as in SQuAD v1.1 (https://arxiv.org/abs/1606.05250).
    Articles go after punctuation: ``"A.N. Other"`` becomes ``"other"``. Letters are composed with their
    accents first (NFC), so that two spellings of one text are equal; composed text is not affected.

    >>> normalize_answer("  The Hateful—Eight, a film!")
    'hateful—eight film'
    """
    plain = unicodedata.normalize("NFC", text).lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def plain_text(text: str) -> str:
    """As ``normalize_answer``, with each number kept apart from every other one: 1.4 from 14, -5 from 5.

    >>> plain_text("The -5 of 1,000!")
    'minus5 of 1000'
    """
    return normalize_answer(normalize_numbers(text))


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 where the normalised prediction equals a normalised answer, else 0.0.

    Where an answer is a number, the prediction has to be the same number, too.
    """
    right = (
        all(plain(prediction) == plain(answer) for plain in _readings(answer)) for answer in _some(answers)
    )
    return float(any(right))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Word overlap with the answer that fits best, in [0, 1].

    F1 = 2PR / (P + R), with P = common / predicted words, R = common / answer words; words are those of
    the normalised texts, and a word said twice must be wanted twice. Where either text has no
    words left, 1.0 if neither has and 0.0 otherwise (SQuAD v1.1 leaves this open, MuSiQue does so). Where
    the answer is a number, another number is no common word.

    Args:
        prediction: The answer to judge.
        answers: The answer and its aliases, at least one; the highest score counts.
    """
    return max(
        min(_f1(plain(prediction), plain(answer)) for plain in _readings(answer)) for answer in _some(answers)
    )


def _readings(answer: str) -> Sequence[Callable[[str], str]]:
    """How texts are normalised to be compared with an answer: SQuAD's way, and for a number also as such."""
    return (normalize_answer,) if read_number(answer) is None else (normalize_answer, plain_text)


def _f1(prediction: str, answer: str) -> float:
    """F1 of two normalised texts."""
    said, wanted = prediction.split(), answer.split()
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    # 2PR / (P + R) with P = common/said and R = common/wanted, without a division by zero
    return 2 * common / (len(said) + len(wanted))


def format_answer(answer: str, answer_format: AnswerFormat) -> str:
    """The response that gives ``answer`` in the declared format, and nothing else."""
    return answer if answer_format == "line" else f"<answer>{answer}</answer>"


def without_reasoning(response: str) -> str:
    """What a response says after its thought; all of it where it closes none with ``</think>``."""
    return response.rpartition("</think>")[2]


def extract_answer(response: str, answer_format: AnswerFormat) -> str | None:
    """The answer that a response gives, stripped; None where it gives none.

    ``line``: its first line that is not blank. ``tag``: the content of its last complete
    ``<answer>…</answer>``; what stands before is thinking. A thought up to ``</think>`` is no part of it.
    """
    response = without_reasoning(response)
    if answer_format == "line":
        return next((line.strip() for line in response.splitlines() if line.strip()), None)
    tags = _TAG.findall(response)
    return (tags[-1].strip() or None) if tags else None


def follows_format(response: str, answer_format: AnswerFormat) -> bool:
    """Whether a response gives one answer and stops there.

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
    """The answers, unless there are none or they are one bare string, whose letters would be compared."""
    if isinstance(answers, str) or not answers:
        raise DataError("answers must be a sequence of at least one string", got=repr(answers))
    return answers
