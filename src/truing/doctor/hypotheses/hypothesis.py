"""A hypothesis of `truing why`."""

from dataclasses import dataclass
from typing import Literal

HypothesisState = Literal["found", "open", "ruled out"]


@dataclass(frozen=True)
class Hypothesis:
    """A possible cause, and its state."""

    name: str
    state: HypothesisState
    because: str  # with numbers
    test: str = ""  # the deciding test, as a command if there is one
    minutes: float | None = None  # duration of the test, from recorded seconds; None is unknown
    changes: tuple[str, ...] = ()  # of the recipe, if the test trains with them
    code: str = ""  # of the rule with the finding
