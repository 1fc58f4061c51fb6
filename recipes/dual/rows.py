"""Rows of BBQ and HaluEval as items: questions and their right answers.

BBQ       https://arxiv.org/abs/2110.08193  fairness/<category>: which of three people or "unknown" is meant
HaluEval  https://arxiv.org/abs/2305.11747  hallucination/qa: answer from the knowledge;
                                            hallucination/general: does a chat response hold made-up facts
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from truing.envs.data.rows import Row
from truing.errors import DataError
from truing.rewards import extract_answer, normalize_answer
from truing.rewards.option_match import chosen_option, faithfulness


@dataclass(frozen=True)
class Choice:
    """One of some options is right."""

    options: tuple[str, ...]
    right: int

    @property
    def gold(self) -> str:
        """The answer: the text of the right option."""
        return self.options[self.right]


@dataclass(frozen=True)
class Claim:
    """A right answer, and wrong ones that sound like it."""

    gold: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One question."""

    family: str
    item_id: str
    variant_key: str  # items with the same key are variants of one text, and stay in one split
    asked: str
    answer: Choice | Claim
    where: str


class _BbqRow(BaseModel):
    example_id: int
    category: str
    question_index: str
    context: str
    question: str
    ans0: str
    ans1: str
    ans2: str
    label: Annotated[int, Field(ge=0, le=2)]

    def item(self, where: str) -> Item:
        """Return the row as an item; its variants are those of the same template."""
        choice = Choice((self.ans0, self.ans1, self.ans2), self.label)
        return Item(
            family=f"fairness/{self.category}",
            item_id=str(self.example_id),
            variant_key=self.question_index,
            asked=f"{self.context}\n\n{_options(self.question, choice)}",
            answer=choice,
            where=where,
        )


class _QaRow(BaseModel):
    knowledge: str
    question: str
    right_answer: str
    hallucinated_answer: str
    hallucinated_answer_2: str | None = None  # the generation files hold two, the published set one

    def item(self, where: str) -> Item:
        """Return the row as an item, named by its content since published rows have no id."""
        wrong = (self.hallucinated_answer, self.hallucinated_answer_2)
        content = "\n".join((self.knowledge, self.question, self.right_answer))
        return Item(
            family="hallucination/qa",
            item_id=hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:12],
            variant_key=self.question,
            asked=f"{self.knowledge.strip()}\n\nQuestion: {self.question}\n\nAnswer in a few words.",
            answer=Claim(" ".join(self.right_answer.split()), tuple(text for text in wrong if text)),
            where=where,
        )


class _GeneralRow(BaseModel):
    ID: str
    user_query: str
    chatgpt_response: str
    hallucination: Literal["yes", "no"]

    def item(self, where: str) -> Item:
        """Return the row as an item."""
        choice = Choice(("Yes", "No"), ("yes", "no").index(self.hallucination))
        text = f"User: {self.user_query}\n\nResponse: {self.chatgpt_response}"
        question = _options("Does the response hold anything that is made up?", choice)
        return Item("hallucination/general", self.ID, self.user_query, f"{text}\n\n{question}", choice, where)


_FORMATS: dict[str, type[_BbqRow | _QaRow | _GeneralRow]] = {
    "question_index": _BbqRow,
    "right_answer": _QaRow,
    "chatgpt_response": _GeneralRow,
}
"""A field that only rows of a format have → the format."""


def read_item(row: Row) -> Item | str:
    """Return the item of a row.

    Raises:
        DataError: The row has none of the formats, or a field that its format does not allow.
    """
    formats = [form for field, form in _FORMATS.items() if field in row.values]
    if len(formats) != 1:
        raise DataError(
            f"{row.where} has no known format",
            got=sorted(row.values),
            expected=f"fields of BBQ, or of HaluEval's qa or general: one of {', '.join(_FORMATS)}",
        )
    try:
        item = formats[0].model_validate(row.values).item(row.where)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise DataError(f"field {field!r} of {row.where} cannot be used", got=problem["msg"]) from error
    answer = item.answer
    if isinstance(answer, Claim) and not answer.wrong:
        return "which has no wrong answer"
    if isinstance(answer, Claim) and (
        not normalize_answer(answer.gold) or faithfulness(answer.gold, answer.gold, answer.wrong) < 1
    ):
        return "whose right answer is empty or equals a wrong one"
    answer_text = extract_answer(answer.gold, "line") or ""
    if isinstance(answer, Choice) and chosen_option(answer_text, answer.options) != answer.right:
        return "whose right option equals another"
    return item


def _options(question: str, choice: Choice) -> str:
    """Return a question with its options, one per line.

    Without letters: a small model takes one of them whatever the options say.
    """
    lines = [f"- {text}" for text in choice.options]
    return "\n".join([question, *lines, "", "Answer with one of these."])
