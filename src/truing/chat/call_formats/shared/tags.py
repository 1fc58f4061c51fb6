"""What a family writes between the parts of a call."""

import json
from dataclasses import dataclass

from truing.types.message import ToolCall

NAME = r"[^\s<>{}\[\]\"]+"
"""What a tool may be called for its name to be read back."""
KEY = r"[^\n<>\"]+"
"""What an argument may be called."""


@dataclass(frozen=True)
class Tags:
    """The text around names and values, with its new lines as chat templates write them."""

    begin: str  # before the name of the tool, from the end of the opening tag on
    named: str  # after the name
    key: str  # before the name of an argument
    keyed: str  # between that and its value
    valued: str  # after the value
    end: str  # after the last argument
    closing: str  # after the last call
    many: bool = False  # whether several calls may stand before the closing tag
    python_words: bool = False  # whether some templates write True for true, and None for null

    def layout(self, call: ToolCall) -> str:
        """A call as templates write it, from the end of the opening tag to that of the call."""
        texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in call.arguments.items()}
        written = "".join(f"{self.key}{key}{self.keyed}{text}{self.valued}" for key, text in texts.items())
        return f"{self.begin}{call.name}{self.named}{written}{self.end}"

    @property
    def padded(self) -> bool:
        """Whether each value stands between two new lines that are not its own."""
        return self.keyed.endswith("\n") and self.valued.startswith("\n")
