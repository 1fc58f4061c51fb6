"""A cause of a reward that does not go up, and what the record says of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from truing.doctor.causes.history import History


@dataclass(frozen=True)
class Advice:
    """What to do next."""

    text: str  # a command, if there is one
    minutes: float | None = None  # that it takes, from recorded seconds; None if unknown
    changes: tuple[str, ...] = ()  # of the recipe, if it trains with them


State = Literal["found", "open", "cannot tell", "ruled out"]

STATES: tuple[State, ...] = ("found", "open", "cannot tell", "ruled out")
"""In the order of a report."""


@dataclass(frozen=True)
class Answer:
    """What the record says of a cause."""

    state: State
    because: str  # the figures that show it, or that rule it out
    explains: float = 0.0  # the share of the training signal that it takes, or of the height that was lost
    advice: Advice = Advice("")  # of an open cause what settles it, of a found one the remedy
    outcomes: str = ""  # what either result of the test means
    title: str = ""  # of the cause
    name: str = ""  # of its file
    code: str = ""  # of the rule, if it is the finding of one


def always(history: History) -> bool:
    """Return True: any run can have the cause."""
    return True


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause, judged by the steps of one stage. Its page is the docstring of its module."""

    title: str
    needs: tuple[str, ...] = ()
    """Metrics of the stage; also ``samples``, ``recipe``, ``evaluations`` and ``entropy``. Without one
    of them the record cannot tell."""
    judge: Callable[[History], Answer | None]
    """Returns what the record says; None if it has nothing that the cause is about."""
    applies: Callable[[History], bool] = always
    """Returns whether the run can have this cause at all."""
    stages: tuple[str, ...] = ("policy",)
    """Kinds of stages that can have it: ``policy``, ``sft``, ``rft``."""
    rules: tuple[str, ...] = ()
    """Rules whose findings are of this cause: it is named in their place."""
    tier: int = 0
    """0 for what acts on rollouts or optimizer; 1 for what may result from those; 2 and 3 for what remains.

    The latter are judged once no other cause is found, or left open, that takes most of the training signal.
    """
    found: tuple[Callable[[], History], ...]
    """Return records that show the cause, or leave it open."""
    excluded: tuple[Callable[[], History], ...]
    """Return records that look like it, and exclude it."""

    def answer(self, history: History) -> Answer | None:
        """Return what the record says, also that it lacks what the cause is judged by."""
        if history.kind not in self.stages or not self.applies(history):
            return None
        if lacking := [need for need in self.needs if not history.has(need)]:
            return Answer("cannot tell", f"the record lacks {', '.join(lacking)}", title=self.title)
        answer = self.judge(history)
        return answer and replace(answer, title=answer.title or self.title)
