"""Rows of BFCL v4: single turns, conversations, documents of functions; distinguished by their fields."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from truing.envs.data.rows import Row
from truing.errors import DataError
from truing.types.message import ToolSpec

from .schema import json_schema

FORMATS = "rows of BFCL v4 with their ground_truth, or its function documents with their api_class"

Turns = tuple[tuple[dict[str, str], ...], ...]


class Function(BaseModel):
    """A function as BFCL describes it."""

    name: str
    description: str
    parameters: dict[str, Any]

    def spec(self) -> ToolSpec:
        """The description for the model."""
        return ToolSpec(self.name, self.description, json_schema(self.parameters))


class FunctionDocument(Function):
    """A function of one of the episodes' classes."""

    api_class: str

    @property
    def key(self) -> tuple[str, str]:
        """The unique key of a document."""
        return self.api_class, self.name


class SingleTurn(BaseModel):
    """A question, functions, and for each right call the values that each parameter may have."""

    id: str
    question: Turns
    function: tuple[Function, ...]
    ground_truth: tuple[dict[str, dict[str, list[Any]]], ...] | None = None

    @property
    def key(self) -> str:
        """The unique key of a row."""
        return self.id

    def answers(self) -> tuple[dict[str, Any], ...]:
        """The right calls, by name and arguments; of irrelevance rows there are none, nor a ground truth.

        Where the data lists no value for an argument, it means the empty list.
        """
        if (self.ground_truth is None) != ("irrelevance" in self.id):
            raise DataError(
                f"row {self.id} has no ground truth, or has one where no call is right", expected=FORMATS
            )
        answers = tuple(
            {"name": name, "arguments": {key: values or [[]] for key, values in arguments.items()}}
            for call in self.ground_truth or ()
            for name, arguments in call.items()
        )
        strangers = {answer["name"] for answer in answers} - {function.name for function in self.function}
        if strangers:
            raise DataError(
                f"row {self.id} wants calls of functions that it does not have", got=sorted(strangers)
            )
        objects = (
            option for answer in answers for values in answer["arguments"].values() for option in values
        )
        for option in objects:
            for part in option if isinstance(option, list) else [option]:
                if isinstance(part, dict) and not all(
                    isinstance(each, list) and each for each in part.values()
                ):
                    raise DataError(
                        f"row {self.id} has an object whose values are not lists of what they may be",
                        got=part,
                    )
        return answers

    def variant_keys(self) -> set[str]:
        """Rows that share one are variants: here, those that ask the same."""
        return {" ".join(message["content"].casefold().split()) for message in self.question[0]}


class MultiTurn(BaseModel):
    """A conversation, its initial state, and the calls that each turn needs."""

    id: str
    question: Turns
    initial_config: dict[str, Any]
    involved_classes: tuple[str, ...]
    ground_truth: tuple[tuple[str, ...], ...]
    missed_function: dict[int, tuple[str, ...]] = {}  # withheld until that turn

    @property
    def key(self) -> str:
        """The unique key of a row."""
        return self.id

    def variant_keys(self) -> set[str]:
        """Rows that share one are variants: here, those of one scenario number or of one first request."""
        return {
            f"scenario {self.id.rsplit('_', 1)[1]}",
            *(message["content"] for message in self.question[0]),
        }


Found = TypeVar("Found", FunctionDocument, SingleTurn, MultiTurn)


def read_row(row: Row) -> FunctionDocument | SingleTurn | MultiTurn:
    """Return a row in its format.

    Raises:
        DataError: The row has none of the three formats, or a field is invalid.
    """
    kinds = {"api_class": FunctionDocument, "involved_classes": MultiTurn, "function": SingleTurn}
    for field, kind in kinds.items():
        if field in row.values:
            return _validated(kind, row)
    raise DataError(f"{row.where} has no known format", got=sorted(row.values), expected=FORMATS)


def _validated(kind: type[Found], row: Row) -> Found:
    """Return the row in that format."""
    try:
        return kind.model_validate(row.values)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise DataError(
            f"field {field!r} of {row.where} cannot be used: {problem['msg']}", expected=FORMATS
        ) from error
