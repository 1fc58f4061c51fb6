"""What `truing why` answers with."""

from dataclasses import dataclass
from typing import Literal

HypothesisState = Literal["found", "open", "ruled out"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer to the question, and where it stands."""

    name: str
    state: HypothesisState
    because: str  # with numbers
    test: str = ""  # what would settle it, as a command where there is one
    minutes: float | None = None  # what that takes, by the seconds on record; None is not known
    changes: tuple[str, ...] = ()  # of the recipe, where the test is to train with them
    code: str = ""  # of the rule that found it
