"""The evaluation is too small to show a gain.

Open: Its interval is wider than ± 0.04, and it found no difference.
Excluded: It found one, or its interval is narrower.
"""

import math

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import evaluate_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.doctor.example_steps import example_evaluation

WIDTH = 0.04
"""Half of an interval, in units of the reward."""


def judge(history: History) -> Answer | None:
    """Return the width of the interval of the gain."""
    gain = history.outcome.gain
    if gain is None:
        return None
    tasks, half = len(gain.differences), (gain.paired.high - gain.paired.low) / 2
    if gain.significant or not half > WIDTH:
        return Answer("ruled out", str(gain))
    needed = math.ceil(tasks * (half / WIDTH) ** 2)
    because = f"{gain}: for ± {WIDTH} it takes about {needed} tasks"
    # an environment may have no more tasks, and only the recipe may state their number
    declared = history.facts.recipe.env.get("eval")
    there = min(needed, declared) if isinstance(declared, int) else 0
    if there and there < needed:
        because += f", and env.eval is {there}"
        because += f", which give about ± {half * math.sqrt(tasks / there):.2g}" if there > tasks else ""
    test = evaluate_again(history, there) if there > tasks else Advice("")
    return Answer("open", because, 0.08, test, "if it shows a gain, these tasks were too few to see it")


def _evaluated(tasks: int) -> History:
    rewards = [float(i % 2) for i in range(tasks)]
    pair = (example_evaluation("base", rewards), example_evaluation("after_grpo", rewards[::-1]))
    return example_history(recipe={"env.eval": 3000}, evaluations=pair)


CAUSE = Cause(
    title="the evaluation is too small",
    needs=("recipe", "evaluations"),
    stages=("policy", "rft", "sft"),
    judge=judge,
    tier=3,
    found=(lambda: _evaluated(60),),
    excluded=(lambda: _evaluated(3000),),
)
