"""The doctor's cost: its share of the seconds of an ordinary run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dev.measure.cases import Case
from dev.measure.truing_side import TimedStep, run_case


@dataclass(frozen=True)
class DoctorCost:
    """The doctor's shares of step time, in [0, 1]."""

    steps: int
    first: float  # of the first step, which runs every audit
    later: float  # of all later steps
    whole: float  # of the run
    looked_at: int  # steps with an audit of any kind
    step_seconds: float  # median, without the first step


def measure_doctor_cost(case: Case, steps: int) -> dict[str, float]:
    """Return the doctor's share over ``steps`` steps of a case, at the default budget."""
    return asdict(cost_of(run_case(case, steps)))


def cost_of(steps: Sequence[TimedStep]) -> DoctorCost:
    """Return the cost from the phases of recorded steps; the time of the rules counts with the next step."""
    doctor_seconds = [step.record.seconds.get("doctor", 0.0) for step in steps]
    step_seconds = [sum(step.record.seconds.values()) for step in steps]
    later = sorted(step_seconds[1:])
    return DoctorCost(
        len(steps),
        doctor_seconds[0] / step_seconds[0],
        sum(doctor_seconds[1:]) / sum(step_seconds[1:]),
        sum(doctor_seconds) / sum(step_seconds),
        sum(step.is_audited for step in steps),
        later[len(later) // 2],
    )
