"""Rows of multi-hop question answering in three published formats, distinguished by their fields.

MuSiQue          https://arxiv.org/abs/2108.00573  paragraphs with is_supporting; answer_aliases
HotpotQA         https://arxiv.org/abs/1809.09600  context and supporting_facts
2WikiMultihopQA  https://arxiv.org/abs/2011.01060  as HotpotQA, and evidences
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_validator

from truing.envs.data.rows import Row
from truing.errors import DataError
from truing.rewards import normalize_answer

FORMATS = "fields of MuSiQue (paragraphs, …), or of HotpotQA or 2WikiMultihopQA (context, supporting_facts)"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, and whether it supports the answer."""

    title: str
    text: str
    supporting: bool


@dataclass(frozen=True)
class Question:
    """A question, every accepted answer (the first is canonical), and its paragraphs."""

    family: str
    question_id: str
    text: str
    answers: tuple[str, ...]
    paragraphs: tuple[Paragraph, ...]
    where: str

    @property
    def task_id(self) -> str:
        """The question's name among those of all data sets."""
        return f"{self.family}/{self.question_id}"


class _MusiqueParagraph(BaseModel):
    title: str
    paragraph_text: str
    is_supporting: bool


class _MusiqueRow(BaseModel):
    id: str
    question: str
    answer: str
    answer_aliases: tuple[str, ...]
    paragraphs: tuple[_MusiqueParagraph, ...]


class _HotpotRow(BaseModel):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    context: tuple[tuple[str, tuple[str, ...]], ...]
    supporting_facts: tuple[tuple[str, int], ...]

    @field_validator("context", "supporting_facts", mode="before")
    @classmethod
    def _paired(cls, value: Any) -> Any:
        """The hub stores the pairs as two columns: {"title": […], "sentences": […]}."""
        return list(zip(*value.values(), strict=True)) if isinstance(value, Mapping) else value


def read_question(row: Row) -> Question | str:
    """Return the question of a row.

    Raises:
        DataError: The row has none of the formats, or a field that its format does not allow.
    """
    fields = row.values
    if not {"question", "answer"} <= fields.keys():
        raise DataError(f"{row.where} has no known format", got=sorted(fields), expected=FORMATS)
    if fields.get("answerable") is False:  # of the three formats only MuSiQue's has the field
        return "not answerable"
    try:
        if "paragraphs" in fields:
            question = _musique(_MusiqueRow.model_validate(fields), row.where)
        elif "context" in fields:
            question = _hotpot(_HotpotRow.model_validate(fields), row)
        else:
            return "without paragraphs"
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise DataError(
            f"field {field!r} of {row.where} cannot be used: {problem['msg']}", expected=FORMATS
        ) from error
    if not question.answers:
        return "with an answer of articles and punctuation alone"
    if not any(paragraph.supporting for paragraph in question.paragraphs):
        return "without a supporting paragraph"
    return question


def _musique(row: _MusiqueRow, where: str) -> Question:
    """A MuSiQue row as a question."""
    paragraphs = tuple(Paragraph(p.title, p.paragraph_text, p.is_supporting) for p in row.paragraphs)
    answers = _gradable(row.answer, *row.answer_aliases)
    return Question("musique", row.id, row.question, answers, paragraphs, where)


def _hotpot(row: _HotpotRow, source: Row) -> Question:
    """A HotpotQA or 2WikiMultihopQA row as a question."""
    supporting = {title for title, _ in row.supporting_facts}
    paragraphs = tuple(
        Paragraph(title, " ".join(sentence.strip() for sentence in sentences), title in supporting)
        for title, sentences in row.context
    )
    family = "2wikimultihopqa" if "evidences" in source.values else "hotpotqa"
    return Question(family, row.id, row.question, _gradable(row.answer), paragraphs, source.where)


def _gradable(answer: str, *aliases: str) -> tuple[str, ...]:
    """Return the answers, one line each; none if the answer has no words to grade.

    An alias without words is skipped: an empty response would get the full reward.
    """
    answers = tuple(" ".join(text.split()) for text in (answer, *aliases))
    return tuple(text for text in answers if normalize_answer(text)) if normalize_answer(answer) else ()
