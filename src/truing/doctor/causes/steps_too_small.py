"""Optimizer steps are too small: the policy hardly changes.

Found: Evaluations before and after the stage have the same answers, or the policy is still at its reference.
Open: Nothing on record says how far the policy moved, or few answers changed without another sign.
Excluded: It moved: the reward changed, or the KL, or the answers.
"""

import math
from dataclasses import replace

from truing.config.stages import default_learning_rate
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log, falling, rising
from truing.doctor.causes.history import History, has_signal
from truing.doctor.causes.steps_too_large import signs
from truing.doctor.causes.trend import MIN_STEPS
from truing.doctor.example_steps import example_evaluation
from truing.utils.format import with_count

SAME, ALIKE, OTHER = 0.95, 0.85, 0.7
"""Of the answers of two evaluations that are drawn alike."""

NEAR, CLOSE, MOVED = 1e-4, 1e-3, 1e-2
"""Nats per token from the reference after the stage."""

MANY = 0.5
"""Of the steps."""

FACTOR, STILL, UNCHANGED = 3, 10, 100
"""The factor of the test's rate; if few answers changed, since three times may show nothing; if none did."""

CUT, SCALE = 1e-4, 0.1
"""A clip of the gradient whose share of a weight is near AdamW's ε, and a scale of an adapter."""

TINY = 100
"""The factor of a usual rate over one that needs no other sign."""

OUTCOMES = (
    "if the reward rises, steps were too small; if answers change and it does not, the rate is not the cause;"
    " if hardly one changes, take ten times more"
)


def judge(history: History) -> Answer:
    """Return how far the policy moved."""
    outcome, learnable = history.outcome, sum(map(has_signal, history.counted))
    if outcome.denied:
        return Answer("ruled out", outcome.trend.summary())
    if (outcome.learns and history.trend.rises) or outcome.fell or outcome.down:
        return Answer("ruled out", next(outcome.lines()))
    if learnable < MANY * len(history.counted):
        because = f"{learnable} of {len(history.counted)} steps have anything to learn from: that comes first"
        return Answer("cannot tell" if learnable else "ruled out", because)
    if history.trend.steps < MIN_STEPS:
        steps = with_count(history.trend.steps, "step")
        return Answer("cannot tell", f"{steps} may be too few to move the policy")
    at = f"learning rate {history.rate:.2g} over {history.length}"
    usual = _usual_rate(history)
    if tiny := history.rate * TINY < usual:
        at += f" (recipes without a rate take {usual:g})"
    if limits := _limits_of_steps(history):
        at += f", with {', '.join(f'{key} = {value:g}' for key, (value, _) in limits.items())}"
    return _by_answers(history, at, tiny) or _by_distance(history, at, tiny)


def _limits_of_steps(history: History) -> dict[str, tuple[float, object]]:
    """Return what makes steps small whatever the rate is: by key, what it is and what is usual."""
    if history.run is None:
        return {}
    optimizer, lora = history.run.recipe.optimizer, history.run.recipe.lora
    limits: dict[str, tuple[float, object]] = {}
    if optimizer.max_grad_norm < min(CUT, history.mean("grad/norm")):
        limits["optimizer.max_grad_norm"] = optimizer.max_grad_norm, 1.0
    if lora and lora.alpha and lora.rank and lora.alpha < SCALE * lora.rank:
        limits["lora.alpha"] = lora.alpha, 2 * lora.rank
    return limits


def _by_answers(history: History, at: str, tiny: bool) -> Answer | None:
    """Return it by the answers of two evaluations; None without them, or if some changed."""
    if (known := same_answers(history)) is None:
        return None
    same, tasks = known
    if same >= SAME * tasks:
        because = f"{at}: {same} of {tasks} evaluated answers are the same before and after the stage"
        factor = UNCHANGED if same == tasks else STILL
        return Answer("found", because, 0.9, _test(history, factor), OUTCOMES)
    if (
        (moved := signs(history))
        or same <= OTHER * tasks
        or (same < ALIKE * tasks and history.outcome.learns)
    ):
        because = "; ".join([f"{tasks - same} of {tasks} evaluated answers changed", *moved])
        return Answer("ruled out", because)
    has_kl = history.run is not None and history.run.recipe.kl.coef > 0  # perhaps why so few changed
    share = 0.9 * (same / tasks - OTHER) / (SAME - OTHER) * (0.2 if has_kl and not tiny else 1.0)
    because = f"{at}: {tasks - same} of {tasks} evaluated answers changed"
    factor = STILL if tiny or same >= ALIKE * tasks else FACTOR
    return Answer("open", because, share, _test(history, factor), OUTCOMES)


def _by_distance(history: History, at: str, tiny: bool) -> Answer:
    """Return it by the distance to the reference, or by the rate alone."""
    if history.outcome.learns:
        return Answer("ruled out", next(history.outcome.lines()))
    if moved := signs(history):
        return Answer("ruled out", "; ".join(moved))
    distance = history.after("kl_all/k3")
    if math.isnan(distance):
        distance = abs(history.after("kl/any"))  # of a log, by k1 it may be below 0
    has_kl = history.run.recipe.kl.coef > 0 if history.run else history.late("weight/kl") > 0
    if distance < CLOSE and not has_kl:
        because = f"{at}: the policy is {distance:.1g} nats per token from its reference"
        if distance < NEAR:
            return Answer("found", because, 0.9, _test(history, STILL), OUTCOMES)
        return Answer("open", because, 0.4, _test(history, FACTOR), OUTCOMES)
    if distance > MOVED:
        return Answer("ruled out", f"the policy is {distance:.2g} nats per token from its reference")
    return Answer("open", at, 0.6 if tiny else 0.05, _test(history, STILL if tiny else FACTOR), OUTCOMES)


def _test(history: History, factor: int) -> Advice:
    """Return the test at a larger rate: the usual one, where that is more than a hundred times larger."""
    limits: dict[str, object] = {key: value for key, (_, value) in _limits_of_steps(history).items()}
    usual = _usual_rate(history)
    tiny = history.rate * TINY < usual
    rate = {f"{history.stage}.learning_rate": usual if tiny else factor * history.rate}
    changes = {**(limits or rate), f"{history.stage}.steps": len(history.steps)}
    words = f"at a learning rate of {usual:g}" if tiny else f"at {factor} times the learning rate"
    return train_again(history, changes, words)


def _usual_rate(history: History) -> float:
    """Return the rate of recipes without one."""
    return default_learning_rate(history.stage, bool(history.run and history.run.recipe.lora))


def same_answers(history: History) -> tuple[int, int] | None:
    """Return the tasks with the same answers in the first and the last evaluation, and all; None if unknown.

    Evaluations draw with the same keys, so that the same policy gives the same answers.
    """
    if len(history.evaluations) < 2:
        return None
    before, after = history.evaluations[0].answers, history.evaluations[-1].answers
    shared = [task for task in before if task in after]
    return (sum(before[task] == after[task] for task in shared), len(shared)) if shared else None


def slow() -> History:
    """The evaluation gains a little, with most answers as before, and the reward does not clearly rise."""
    before, after = ([float(i < count) for i in range(200)] for count in (80, 100))
    evaluations = [
        replace(
            example_evaluation(name, rewards),
            answers={f"eval-{i}": [str(reward)] for i, reward in enumerate(rewards)},
        )
        for name, rewards in (("base", before), ("after_grpo", after))
    ]
    return example_history({"lr": 1e-8}, evaluations=evaluations)


CAUSE = Cause(
    title="optimizer steps are too small",
    needs=("lr",),
    judge=judge,
    tier=2,
    found=(
        lambda: example_history({"kl_all/k3": 1e-7, "lr": 1e-8}),
        slow,
        lambda: example_log({"kl/any": 6e-4, "lr": 5e-7}),
    ),
    excluded=(
        lambda: example_history({"reward/mean": rising()}),
        lambda: example_history({"kl_all/k3": 0.05}),
        lambda: example_history({"kl_all/k3": 1e-7, "advantage/max_abs": 0.0}),
        lambda: example_log({"reward/mean": falling()}),
    ),
)
