"""The result of a training run: its directory and its evaluations."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import Estimate
from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.record import Event


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its directory, and its evaluations in order."""

    run: Path
    evaluations: Mapping[str, Evaluation]

    def __str__(self) -> str:
        """Return the run directory and the estimate of each evaluation."""
        return "\n".join(
            [str(self.run), *(f"{name}: {estimate}" for name, estimate in self.estimates().items())]
        )

    def estimates(self) -> dict[str, Estimate]:
        """Return the mean reward with its interval, by evaluation."""
        return {name: evaluation.estimate() for name, evaluation in self.evaluations.items()}

    def gains(self) -> dict[str, Estimate]:
        """Return each stage's gain over the previous evaluation, as a paired difference."""
        names = list(self.evaluations)
        return {
            name: self.evaluations[name].gain_over(self.evaluations[before])
            for before, name in itertools.pairwise(names)
        }


def evaluations_of(events: Sequence[Event]) -> dict[str, Evaluation]:
    """Return the evaluations in events, by name, without those of steps that a guard undid."""
    return {name: read_evaluation(payload) for name, payload in current_evaluations(events).items()}
