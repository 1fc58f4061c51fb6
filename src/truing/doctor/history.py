"""What the doctor keeps of earlier steps: as much after 100,000 steps as after 1,100."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from truing.types.step_table import StepNumbers

FIRST = 100
"""Steps that are kept of the start of a stage."""

LAST = 1000
"""Steps that are kept of its end."""

Audit = Mapping[str, Any]
"""The fact ``audit``: ``tokens``, and the ``gains`` of each feature, by the strength of its bets."""


@dataclass(frozen=True, eq=False)
class Dropped:
    """Steps of a stage after its first and before its last ones."""

    steps: int = 0
    audits: tuple[Audit, ...] = ()  # their sum, if any was audited

    def with_step(self, past: StepNumbers) -> "Dropped":
        """Return these steps and one more."""
        audit = [past.facts["audit"]] if "audit" in past.facts else []
        added = (sum_of_audits([*self.audits, *audit]),) if audit else self.audits
        return Dropped(self.steps + 1, added)


def sum_of_audits(audits: Sequence[Audit]) -> Audit:
    """Return tokens and gains of at least one audit, added up."""
    features = dict.fromkeys(feature for each in audits for feature in each["gains"])
    gains = {
        feature: [
            math.fsum(column)
            for column in zip(
                *(each["gains"][feature] for each in audits if feature in each["gains"]), strict=True
            )
        ]
        for feature in features
    }
    return {"tokens": sum(each["tokens"] for each in audits), "gains": gains}


class History:
    """The first and last steps of each stage, and how many are between them."""

    def __init__(self, steps: Iterable[StepNumbers] = ()) -> None:
        self._kept: dict[str, list[StepNumbers]] = {}
        self._dropped: dict[str, Dropped] = {}
        for each in steps:
            self.add(each)

    def add(self, step: StepNumbers) -> None:
        """Add the newest step."""
        step = step.only_numbers
        kept = self._kept.setdefault(step.stage, [])
        kept.append(step)
        if len(kept) > FIRST + LAST:
            before = self._dropped.get(step.stage, Dropped())
            self._dropped[step.stage] = before.with_step(kept.pop(FIRST))

    @property
    def past(self) -> tuple[StepNumbers, ...]:
        """The kept steps, oldest first."""
        return tuple(chain.from_iterable(self._kept.values()))

    @property
    def dropped(self) -> Mapping[str, Dropped]:
        """The others, by stage."""
        return dict(self._dropped)

    def audits(self, stage: str) -> list[Audit]:
        """Return the audits of draws of a stage, oldest first; those of dropped steps are added up."""
        return audits_of(self._kept.get(stage, ()), self._dropped.get(stage, Dropped()))


def audits_of(past: Iterable[StepNumbers], dropped: Dropped) -> list[Audit]:
    """Return the audits of draws of kept steps, after the sum of those of dropped ones."""
    return [*dropped.audits, *(each.facts["audit"] for each in past if "audit" in each.facts)]
