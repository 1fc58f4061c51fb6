"""The evaluation is too small to show a gain.

Open: Its interval is wider than ± 0.04, and it found no difference.
Excluded: It found one, or its interval is narrower.
"""

import math

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import evaluate_again
from truing.doctor.causes.example import evaluation, example_history
from truing.doctor.causes.history import History
from truing.utils.format import with_count

WIDTH = 0.04
"""Half of an interval, in units of the reward."""


def judge(history: History) -> Answer | None:
    """Return the width of the interval of the last evaluation."""
    gain, now = history.outcome.gain, history.evaluations[-1].estimate()
    if gain is None or not now.tasks:
        return None
    half = (now.high - now.low) / 2
    because = f"{now.mean:.3f} ± {half:.3f} over {with_count(now.tasks, 'task')}"
    because += f": it cannot resolve a gain below {half * math.sqrt(2):.2f}"
    if gain.significant or not half > WIDTH:
        return Answer("ruled out", str(gain) if gain.significant else because)
    needed = math.ceil(now.tasks * (half / WIDTH) ** 2)
    # an environment may have no more tasks, and only the recipe may state their number
    declared = history.facts.recipe.env.get("eval")
    there = min(needed, declared) if isinstance(declared, int) else 0
    if there < needed:
        because += f"; about {needed} would be needed" + (f", and env.eval is {there}" if there else "")
    test = evaluate_again(history, there) if there > now.tasks else Advice("")
    return Answer("open", because, 0.1, test, "if the interval excludes 0, there is a gain that was not seen")


def _evaluated(tasks: int) -> History:
    rewards = [float(i % 2) for i in range(tasks)]
    pair = (evaluation("base", rewards), evaluation("after_grpo", rewards[::-1]))
    return example_history(recipe={"env.eval": 3000}, evaluations=pair)


CAUSE = Cause(
    title="the evaluation is too small",
    needs=("recipe", "evaluations"),
    judge=judge,
    tier=2,
    found=(lambda: _evaluated(60),),
    excluded=(lambda: _evaluated(2000),),
)
