"""One part of the reward outweighs another.

Open: In a log the reward rises and one of its parts does not, which deviates at most a twentieth as much as
another part does.
Excluded: Each part that is far smaller rises with the reward, or nearly all rollouts earn it.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_log, rising
from truing.doctor.causes.history import History
from truing.metrics.aliases import PART

DEVIATION = "part_std/"


def judge(history: History) -> Answer | None:
    """Return the deviations of the parts, and which of them do not rise."""
    known = {
        name: history.mean(f"{DEVIATION}{name}")
        for name in history.part_trends
        if history.has(f"{DEVIATION}{name}")
    }
    if len(known) < 2:
        return None
    because = "deviations of the parts: " + ", ".join(f"{name} {x:.3g}" for name, x in known.items())
    if not (stays := history.outweighed):
        return Answer("ruled out", because)
    ends = [f"{name} {each.first:.3g} → {each.last:.3g}" for name, each in stays.items()]
    because += f"; while the reward rises: {', '.join(ends)}"
    largest = max(known, key=lambda name: known[name])
    title = f"{largest} outweighs {' and '.join(stays)}"
    fix = train_again(history, {}, "with parts that deviate alike (weights, or another unit)")
    outcomes = f"if {' and '.join(stays)} rises then, it counted too little"
    return Answer("open", because, 0.5, fix, outcomes, title)


def _log(small: float, **exact: list[float]) -> History:
    """Return a reward in characters, beside a right answer that pays up to 1."""
    length = [100 * x for x in rising(-3.0, -1.0)]
    parts = {f"{PART}length": length, f"{PART}exact": exact.get("means", [0.4, 0.42] * (STEPS // 2))}
    return example_log(
        {"reward/mean": length, f"{DEVIATION}length": 190.0, f"{DEVIATION}exact": small} | parts
    )


CAUSE = Cause(
    title="one part of the reward outweighs another",
    applies=lambda history: history.run is None,
    judge=judge,
    found=(lambda: _log(0.49),),
    excluded=(
        lambda: _log(0.49, means=rising()),
        lambda: _log(40.0),
        lambda: _log(0.02),  # nearly all rollouts earn it
    ),
)
