"""A stage of demonstrations alone does not raise the evaluation.

Open: The loss on demonstrations falls, and the evaluation does not rise; or the loss does not fall.
Excluded: The evaluation rises.
"""

import math

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import RECENT_STEPS
from truing.doctor.example_steps import example_evaluation

LESS = 0.9
"""Of the first loss."""

LOSS = "the loss on demonstrations does not fall"


def judge(history: History) -> Answer:
    """Return the loss, the evaluation, and how demonstrations differ from it."""
    outcome, losses = history.outcome, history.series("loss/supervised")
    gain, last = outcome.gain, losses[-RECENT_STEPS:]
    because = f"{outcome.loss}; evaluation {gain}" if gain else outcome.loss
    if outcome.better:
        return Answer("ruled out", because)
    if math.fsum(last) / len(last) >= LESS * losses[0]:
        rate = 10 * history.rate
        fix = train_again(history, {f"{history.stage}.learning_rate": rate}, "at ten times the learning rate")
        outcomes = "if the loss falls, the rate was too small; if it rises, take a tenth of the present one"
        return Answer("open", f"{because}; learning rate {history.rate:.2g}", 1.0, fix, outcomes, LOSS)
    if gain is None:
        return Answer("cannot tell", "the record lacks two evaluations")
    because += "".join(_differs(history))
    test = Advice("evaluate on the training tasks, and read answers beside demonstrations")
    outcomes = "if the training tasks are solved, the evaluation asks for what no demonstration shows;"
    outcomes += " if not, answers are sampled or graded otherwise than demonstrations are written"
    return Answer("open", because, 0.5, test, outcomes)


def _differs(history: History) -> list[str]:
    """Return what demonstrations earn, and on how many prompts the last steps train, as text."""
    texts = list[str]()
    if earned := history.demonstrated:
        texts.append(f"; {len(earned)} demonstrations earn {math.fsum(earned) / len(earned):.3g} each")
    if history.samples:
        prompts = {each.prompt_hash for each in history.samples}
        texts.append(f"; the last {len(history.samples)} samples are of {len(prompts)} prompts")
    temperature = history.facts.recipe.eval.temperature
    return [*texts, f"; the evaluation samples at eval.temperature = {temperature:g}"]


def _run(last: float, after: float) -> History:
    losses = [last + (4.0 - last) * 0.7**i for i in range(STEPS)]
    rewards = [[float(i < 100 * share) for i in range(100)] for share in (0.2, after)]
    pair = example_evaluation("base", rewards[0]), example_evaluation("after_sft", rewards[1])
    without = ("reward/mean", "reward/std", "advantage/max_abs", "entropy/sampled")
    recipe = {"stages": ["sft"], "sft.steps": STEPS}
    return example_history(
        {"loss/supervised": losses}, recipe, without=without, stage="sft", evaluations=pair
    )


CAUSE = Cause(
    title="the loss on demonstrations falls, and the evaluation does not rise",
    stages=("sft",),
    needs=("loss/supervised",),
    judge=judge,
    found=(lambda: _run(0.1, 0.2), lambda: _run(4.0, 0.2)),
    excluded=(lambda: _run(0.1, 0.6),),
)
