"""The tags between the parts of a call."""

import json
from dataclasses import dataclass

from truing.types.message import ToolCall

NAME = r"[^\s<>{}\[\]\"]+"
"""Pattern of tool names that can be read back."""
KEY = r"[^\n<>\"]+"
"""Pattern of argument names."""


@dataclass(frozen=True)
class Tags:
    """The text around names and values, with its new lines as chat templates write them."""

    before_name: str  # before the name of the tool, from the end of the opening tag on
    after_name: str  # after the name
    before_key: str  # before the name of an argument
    after_key: str  # between that and its value
    after_value: str  # after the value
    after_arguments: str  # after the last argument
    closing: str  # after the last call
    multiple_calls: bool = False  # whether several calls may precede the closing tag
    python_words: bool = False  # whether some templates write True for true, and None for null

    def canonical_text(self, call: ToolCall) -> str:
        """Return a call as templates write it, from the end of the opening tag to the end of the call."""
        texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in call.arguments.items()}
        arguments_text = "".join(
            f"{self.before_key}{key}{self.after_key}{text}{self.after_value}" for key, text in texts.items()
        )
        return f"{self.before_name}{call.name}{self.after_name}{arguments_text}{self.after_arguments}"

    @property
    def padded(self) -> bool:
        """Whether each value is between two new lines that do not belong to it."""
        return self.after_key.endswith("\n") and self.after_value.startswith("\n")
