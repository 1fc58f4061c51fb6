"""Ratios are exactly 1 at every optimizer step: of another trainer's log, by what it logs of them.

Open: The mean of old − new log-probabilities is exactly 0 in each step, beside a gradient that is not.
Excluded: It is not 0 in some step, or the reward rises.
"""

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_log, rising
from truing.doctor.causes.history import History, has_signal
from truing.utils.format import with_count


def judge(history: History) -> Answer | None:
    """Return how often the mean log-ratio is 0."""
    ratios, norms = history.series("ratio/k1"), history.series("grad/norm")
    if not any(norms) or not any(map(has_signal, history.counted)):
        return None
    zero = sum(each == 0 for each in ratios)
    because = (
        f"the mean of old - new log-probabilities is exactly 0 in {zero} of {with_count(len(ratios), 'step')}"
    )
    if zero < len(ratios) or history.outcome.learns:
        return Answer("ruled out", because)
    test = Advice(
        "count the optimizer steps of a step (verl: ppo_epochs x train_batch_size / ppo_mini_batch_size)"
    )
    outcomes = "with one, ratios are 1; with more, old log-probabilities are those of the weights that train"
    return Answer("open", because, 0.2, test, outcomes)


CAUSE = Cause(
    title="ratios are exactly 1",
    needs=("ratio/k1",),
    applies=lambda history: history.run is None and history.has("ratio/k1"),
    judge=judge,
    found=(lambda: example_log({"ratio/k1": 0.0}),),
    excluded=(
        lambda: example_log({"ratio/k1": 1e-4}),
        lambda: example_log({"ratio/k1": 0.0, "reward/mean": rising()}),
    ),
)
