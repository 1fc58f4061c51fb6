"""No rollout earns anything of the part of the reward with the largest weight.

Found: Of several parts the one with the largest weight is 0 in all steps.
Open: A part is 0 in all records of a log, which does not say how much it counts.
Excluded: It is above 0 in some.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History
from truing.metrics.aliases import PART


def judge(history: History) -> Answer | None:
    """Return the means of all parts."""
    if history.run is None:
        return _of_log(history)
    main, weights = history.main_parts, history.run.weights
    means = {
        name: mean
        for name, weight in weights.items()
        if weight and (mean := history.late(f"reward_part/{name}")) == mean
    }
    if len(means) < 2 or not main:
        return None
    because = "means of the last steps: " + ", ".join(f"{name} {mean:.3g}" for name, mean in means.items())
    title = f"no rollout earns anything of {' or '.join(history.unearned or main)}"
    if not history.unearned:
        return Answer("ruled out", because, title=title)
    because += f"; {_demonstrated(history)}"
    outcomes = "if a right answer earns it, the tasks are too hard; if not, it is broken"
    share = sum(weights[name] for name in history.unearned) / sum(abs(x) for x in weights.values())
    return Answer("found", because, share, check_recipe(history), outcomes, title)


def _demonstrated(history: History) -> str:
    """Return whether demonstrations earn more than the other parts pay, as text."""
    parts = history.facts.weights.items()
    others = sum(weight for name, weight in parts if weight > 0 and name not in history.unearned)
    earned = history.demonstrated
    if earned and min(earned) > others:
        return f"demonstrations earn it ({min(earned):.3g} or more in all): the tasks are too hard"
    if earned and max(earned) <= others:
        return f"demonstrations earn at most {max(earned):.3g}, which other parts may pay: it looks broken"
    return "the tasks are too hard, or this part is broken"


def _of_log(history: History) -> Answer | None:
    """Return the parts that are 0 in each record: how much they count is unknown."""
    parts = {name: history.mean(f"{PART}{name}") for name in history.part_trends}
    nothing = [name for name in parts if not any(history.series(f"{PART}{name}"))]
    if len(parts) < 2 or not nothing:
        return None
    because = f"0 in all of {history.length}; means: "
    because += ", ".join(f"{name} {mean:.3g}" for name, mean in parts.items())
    outcomes = "if a right answer earns it, the tasks are too hard; if not, it is broken; a penalty may be 0"
    title = f"no rollout earns anything of {' or '.join(nothing)}"
    share = 1.0 if history.outcome.learns else 0.4  # where nothing rises, there is more to look at
    return Answer("open", because, share, check_recipe(history), outcomes, title)


def unearned() -> History:
    """A bonus is paid, and the exact answer never."""
    history = example_history({"reward_part/exact": 0.0, "reward_part/short": 0.9})
    return replace(history, run=replace(history.facts, weights={"exact": 1.0, "short": 0.1}))


def earned() -> History:
    """Both are paid."""
    history = example_history({"reward_part/exact": 0.4, "reward_part/short": 0.9})
    return replace(history, run=replace(history.facts, weights={"exact": 1.0, "short": 0.1}))


CAUSE = Cause(
    title="no rollout earns the main part of the reward",
    stages=("policy", "rft"),
    judge=judge,
    tier=1,
    found=(unearned, lambda: example_log({f"{PART}exact": 0.0, f"{PART}short": 0.9})),
    excluded=(earned,),
)
