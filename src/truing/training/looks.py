"""When the doctor looks at an update beyond its record, and at what."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from truing.models.digest import quick_sum
from truing.models.lora import base_weights
from truing.training.audit import audit_facts
from truing.training.facts import regraded
from truing.training.learner import Learner
from truing.training.session import Session
from truing.training.source import Drawn
from truing.training.step import Look
from truing.training.witness import Witness
from truing.types import Sample


class Looks:
    """When a stage is looked at: at its first update, and then as often as its budget of time allows."""

    def __init__(self, budget: float) -> None:
        """``budget`` is the share of a stage's time, in [0, 1]; at 1 every update is looked at."""
        self.budget, self.began, self.spent, self.last = budget, time.perf_counter(), 0.0, 0.0
        self.base = ""  # a digest of what lies below the adapter

    def look(
        self, session: Session, stage: str, turn: int, drawn: Drawn, found: dict[str, Any]
    ) -> Look | None:
        """A look that adds to the facts ``found`` of an update; None where none is due."""
        if not self.due():
            return None

        def at(learner: Learner, minibatch: Sequence[Sample]) -> None:
            with self.timed():
                found.update(Witness(session, stage, turn)(learner, minibatch))
                if session.recipe.lora:
                    digest = quick_sum(base_weights(learner.model))
                    self.base = self.base or digest
                    found["frozen"] = {"digest": digest, "declared": self.base}
                if learner.algorithm.source == "rollouts":
                    everybody = [*drawn.samples, *drawn.failed]
                    found["audit"] = audit_facts(learner, everybody, (session.recipe.seed, stage, turn))
                    found["regraded"] = regraded(drawn.rollouts, session.env.rewards)

        return at

    def due(self) -> bool:
        """Whether another look, as long as the last one, is within the budget."""
        elapsed = time.perf_counter() - self.began
        return self.last == 0 or self.budget == 1 or self.spent + self.last <= self.budget * elapsed

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A look."""
        since = time.perf_counter()
        yield
        self.last = time.perf_counter() - since
        self.spent += self.last
