"""What the doctor costs: its share of the seconds of a run as a user would run it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from truing.bench.cases import Case
from truing.bench.truing_side import TimedStep, run_case


@dataclass(frozen=True)
class DoctorCost:
    """Shares of the time of steps that are the doctor's, in [0, 1]."""

    steps: int
    first: float  # of the first step, which is looked at from all sides
    later: float  # of all that follow
    whole: float  # of the run
    looked_at: int  # steps with a look of any kind
    step_seconds: float  # median of a step behind the first


def measure_doctor_cost(case: Case, steps: int) -> dict[str, float]:
    """The doctor's share over ``steps`` steps of a case, at the default budget."""
    return asdict(cost_of(run_case(case, steps)))


def cost_of(taken: Sequence[TimedStep]) -> DoctorCost:
    """From the phases of recorded steps; what judging a step takes is counted with the step after it."""
    spent = [step.record.seconds.get("doctor", 0.0) for step in taken]
    whole = [sum(step.record.seconds.values()) for step in taken]
    looks = [any(key in step.record.facts for key in ("audit", "plain", "sync")) for step in taken]
    later = sorted(whole[1:])
    return DoctorCost(
        len(taken),
        spent[0] / whole[0],
        sum(spent[1:]) / sum(whole[1:]),
        sum(spent) / sum(whole),
        sum(looks),
        later[len(later) // 2],
    )
