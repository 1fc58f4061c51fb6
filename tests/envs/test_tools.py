"""What a tool's function is called with."""

import pytest

from truing.envs.tools import ToolError, tool


@tool
def repeat(text: str, times: int, share: float = 1.0, most: int | None = None) -> str:
    """Repeat a text."""
    return f"{text * times} {share!r} {(most or 9) * '.'}"


def test_a_whole_number_written_with_a_point_is_an_integer_to_the_function():
    assert repeat.run({"text": "a", "times": 2.0, "share": 2.0, "most": 3.0}) == "aa 2.0 ..."


def test_a_broken_number_is_told_to_the_model():
    with pytest.raises(ToolError, match="times"):
        repeat.run({"text": "a", "times": 2.5})
