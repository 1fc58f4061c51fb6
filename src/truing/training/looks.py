"""When the doctor looks at an update beyond its record, and at what."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils.hooks import RemovableHandle

from truing.models.digest import quick_sum
from truing.models.lora import base_weights
from truing.training.arrival import await_gradient
from truing.training.audit import audit_facts
from truing.training.facts import regraded
from truing.training.learner import Learner
from truing.training.session import Session
from truing.training.source import Drawn
from truing.training.step import Look
from truing.training.witness import Witness
from truing.types import Sample

SHARES = {"weights": 0.2, "audit": 0.4, "rows": 0.2, "gradient": 0.2}
"""Of the budget: digests and one synced layer; bets on the sampler; some rows computed a second time by a
plain forward; every row's gradient, to compare their sum with what the optimiser gets."""

LOOKED_INTO = ("RAT", "SMP", "REF", "KLD", "OPT")
"""Families of rules whose suspicion is worth a look at the next update, whatever it costs."""


@dataclass
class Part:
    """One kind of look, and what it has cost."""

    share: float  # of a stage's time
    grace: float = 0.0  # seconds that it may take in any case
    spent: float = 0.0  # seconds
    last: float = 0.0

    def due(self, elapsed: float) -> bool:
        """Whether another, as long as the last one, is within its share; the first always is."""
        most = max(self.grace, self.share * elapsed)
        return self.last == 0 or self.share == 1 or self.spent + self.last <= most

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A look of this kind."""
        since = time.perf_counter()
        yield
        self.last = time.perf_counter() - since
        self.spent += self.last


class Looks:
    """When a stage is looked at: at its first update, and then as often as its budget of time allows."""

    def __init__(self, budget: float) -> None:
        """``budget`` is the share of a stage's time, in [0, 1]; at 1 every update is looked at."""
        self.began = time.perf_counter()
        self.parts = {name: Part(1 if budget == 1 else share * budget) for name, share in SHARES.items()}
        self.asked = False  # whether somebody wants the next update to be looked at, whatever it costs
        self.base = ""  # a digest of what lies below the adapter
        self.awaited: RemovableHandle | None = None  # an update that is still to come

    def look(
        self, session: Session, stage: str, turn: int, drawn: Drawn, found: dict[str, Any]
    ) -> Look | None:
        """A look that adds to the facts ``found`` of an update; None where none is due."""
        elapsed = time.perf_counter() - self.began
        due = [name for name, part in self.parts.items() if self.asked or part.due(elapsed)]
        self.asked = False
        if self.awaited is not None:  # that update was held back
            self.awaited.remove()
        if not due:
            return None

        def at(learner: Learner, minibatch: Sequence[Sample]) -> None:
            witness = Witness(session, stage, turn)
            kinds = {
                "weights": lambda: self._weights(witness, learner),
                "audit": lambda: self._draws(session, learner, drawn, (session.recipe.seed, stage, turn)),
                "rows": lambda: witness.rows(learner, minibatch),
                "gradient": lambda: self._await(session, learner, minibatch, turn, found),
            }
            for name in due:
                with self.parts[name].timed():
                    found.update(kinds[name]())

        return at

    def _weights(self, witness: Witness, learner: Learner) -> dict[str, Any]:
        """What must stand still, and what the sampler has."""
        found = witness.weights(learner)
        if witness.session.recipe.lora:
            digest = quick_sum(base_weights(learner.model))
            self.base = self.base or digest
            found["frozen"] = {"digest": digest, "declared": self.base}
        return found

    def _await(
        self,
        session: Session,
        learner: Learner,
        minibatch: Sequence[Sample],
        turn: int,
        found: dict[str, Any],
    ) -> dict[str, Any]:
        """Rows gone backward alone; dropout would make them others."""
        if not (session.recipe.lora and session.recipe.lora.dropout > 0):
            self.awaited = await_gradient(learner, minibatch, turn, found)
        return {}

    def _draws(
        self, session: Session, learner: Learner, drawn: Drawn, key: tuple[object, ...]
    ) -> dict[str, Any]:
        """Bets on what was drawn, and grades given again."""
        if learner.algorithm.source != "rollouts":
            return {}
        everybody = [*drawn.samples, *drawn.failed]
        again = regraded(drawn.rollouts, session.env.rewards)
        return {"audit": audit_facts(learner, everybody, key), "regraded": again}
