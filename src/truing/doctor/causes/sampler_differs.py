"""Sampler and trainer differ: rollouts are not drawn from the policy that is trained.

Found: Their KL is at least 0.01 nats per token, or the reward fell after it had grown threefold, to 0.001 or
more.
Open: It is above 0.001; of a log whose reward has not fallen, above 0.003, or it grows.
Excluded: It is below, or the reward rises at a figure that stays below 0.003.
"""

import math
from collections.abc import Iterator

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, example_log, falling, rising
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import RECENT_STEPS
from truing.utils.format import with_count

LARGE, SMALL = 1e-2, 1e-3
"""Nats per token. Runs are stable below 0.01 (Tinker's documentation, "Training and sampling")."""

GREW = 3.0
"""The factor by which it grew before the reward fell."""

BFLOAT16 = 3e-3
"""Nats per token that a sampler and a trainer in bfloat16 with equal weights do not reach."""

OTHER = 0.05
"""Nats per token in the first records, which no rounding makes."""

OLD = 2.0
"""Steps by which the sampler's weights are behind."""


MASKED = 0.05
"""Of the tokens."""


def divergences(history: History) -> tuple[str, list[float]]:
    """Return the KL of sampler and trainer at each step (nats per token), and what it is from.

    Of a mean absolute difference d of log-probabilities it is at least d² ÷ 2, to second order.
    """
    if known := history.series("mismatch/k3"):
        return "the KL of sampler and trainer", known
    differences = history.series("mismatch/mean_abs")
    return "from the mean difference of log-probabilities, their KL", [x**2 / 2 for x in differences]


def judge(history: History) -> Answer:
    """Return how far sampler and trainer are apart, since when, and what it does to the gradient."""
    of, values = divergences(history)
    if not values:
        return _by_probability(history)
    part = max(1, min(RECENT_STEPS, len(values) // 3))
    early, late = _mean(values[:part]), _mean(values[-part:])
    because = f"{of} is {late:.2g} nats per token"
    if late < SMALL:
        return Answer("ruled out", because)
    grew = late > GREW * early
    holds = history.outcome.learns or (history.run is None and not history.outcome.fell)
    if late < BFLOAT16 and not grew and holds:
        return Answer("ruled out", f"{because}, and {early:.2g} at first: bfloat16 makes as much")
    because += "; ".join(["", *_details(history, values, early, late)])
    fell = bool(history.broke) and grew
    share = history.outcome.lost if fell else min(1.0, late / (10 * LARGE))
    outcomes = "if the figure falls and the reward holds, it was the cause"
    fix, title = _remedy(history, grew, early)
    return Answer("found" if fell or late >= LARGE else "open", because, share, fix, outcomes, title)


def _remedy(history: History, grew: bool, early: float) -> tuple[Advice, str]:
    """Return what may make them equal, and the title if old weights are why they differ."""
    behind = history.late("mismatch/steps_behind")
    if grew and behind >= OLD:
        fix = train_again(history, {"engine.ahead": 1}, "with a sampler that is at most one step behind")
        return fix, f"sampler and trainer differ: the sampler's weights are {behind:.3g} steps old"
    if early >= OTHER and history.run is None:
        weights = "compare the sampler's weights with the trainer's (`truing prove`)"
        return Advice(f"{weights}, then the chat template and the sampling parameters of both"), ""
    words = "with the sampler in the trainer's precision"
    return train_again(history, {"correction.method": "truncate"}, words), ""


def _details(history: History, values: list[float], early: float, late: float) -> Iterator[str]:
    """Yield since when it is large, whether it grows, and what it does to the gradient."""
    first = next(i for i, value in enumerate(values) if value >= SMALL)
    since = f"since step {history.counted[first].step + 1}" if first else "from the first record on"
    yield f"above {SMALL:g} {since}"
    yield f"{early:.2g} in the first of {with_count(len(values), 'step')}"
    if (length := history.late("length/mean")) > 0:
        yield f"over {length:.0f} tokens {late * length:.3g} nats per rollout"
    if (behind := history.late("mismatch/steps_behind")) >= OLD:
        yield f"the sampler is {behind:.3g} steps behind ({history.column('mismatch/steps_behind')})"
    if (masked := history.late("gate/ratio_masked_share")) > MASKED:
        yield f"{masked:.0%} of tokens are masked for it ({history.column('gate/ratio_masked_share')})"
    if (effective := history.late("correction/effective_share")) > 0:
        yield f"the corrected gradient counts {effective:.0%} of the tokens"
    if history.broke and late > GREW * early:
        yield (
            f"the reward fell after it had grown {late / early:.1f}-fold"
            if early > 0
            else "the reward fell then"
        )


def _by_probability(history: History) -> Answer:
    """Return the same of a log with differences of probabilities alone, which have no such scale."""
    late = history.late("mismatch/probability")
    if math.isnan(late):
        return Answer("cannot tell", "the record lacks log-probabilities of the sampler beside the trainer's")
    because = f"probabilities of sampler and trainer differ by {late:.2g} on average"
    if late < SMALL:
        return Answer("ruled out", because)
    outcomes = "if their KL is above 0.01 nats per token, this is a cause; below, it is the engine's rounding"
    fix = train_again(history, {"correction.method": "truncate"}, "with their log-probabilities in the log")
    return Answer("open", because, min(1.0, late), fix, outcomes)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def growing() -> History:
    """It grows from 0.0005 to 0.02 nats per token, and then the reward falls."""
    kl = [5e-4 * 1.6**i for i in range(8)] + [0.05] * (STEPS - 8)
    return example_log({"mismatch/k3": kl, "reward/mean": falling()})


def rounding() -> History:
    """An engine in bfloat16: 0.0004 nats per token, as at the start."""
    return example_history({"mismatch/k3": 4e-4, "reward/mean": falling()})


CAUSE = Cause(
    title="sampler and trainer differ",
    judge=judge,
    rules=("RAT002",),
    found=(
        lambda: example_log({"mismatch/k3": 0.03}),
        growing,
        lambda: example_log({"mismatch/mean_abs": 0.2}),
        lambda: example_log({"mismatch/k3": [0.01 * i for i in range(STEPS)], "mismatch/steps_behind": 15.0}),
    ),
    excluded=(
        rounding,
        lambda: example_log({"mismatch/mean_abs": 0.02}),
        lambda: example_log({"mismatch/k3": 2e-3}),
        lambda: example_history({"mismatch/k3": 2e-3, "reward/mean": rising()}),
    ),
)
