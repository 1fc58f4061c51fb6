"""What a run leaves, and what of it is on record while it goes on."""

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
    """What a finished run leaves: its directory, and its evaluations in order."""

    run: Path
    evaluations: Mapping[str, Evaluation]

    def __str__(self) -> str:
        """The run, and what each evaluation came to."""
        return "\n".join([str(self.run), *(f"{name}: {found}" for name, found in self.estimates().items())])

    def estimates(self) -> dict[str, Estimate]:
        """Mean reward with its interval, by evaluation."""
        return {name: evaluation.estimate() for name, evaluation in self.evaluations.items()}

    def gains(self) -> dict[str, Estimate]:
        """What each stage added to the one before, by paired difference."""
        names = list(self.evaluations)
        return {
            name: self.evaluations[name].gain_over(self.evaluations[before])
            for before, name in itertools.pairwise(names)
        }


def evaluations_of(events: Sequence[Event]) -> dict[str, Evaluation]:
    """The evaluations that events tell of, by name, less those of steps that a guard undid."""
    return {name: read_evaluation(payload) for name, payload in current_evaluations(events).items()}
