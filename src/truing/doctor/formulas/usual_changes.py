"""Changes of a declared loss that are usual mistakes: which one the token gradients follow instead."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truing.doctor.evidence import Setup
from truing.doctor.formulas.loss import AGGREGATIONS

NEVER = 1e9
"""A clip that no ratio reaches."""

WEIGHTS, ESTIMATORS = ("none", "detached", "ratio", "score"), ("k3", "k2", "k1")
"""Ways to weigh a KL by its ratio, and to estimate it."""

AGGREGATED = ("token_mean", "sequence_mean", "sequence_total", "prompt_mean", "micro_batch_token_mean")

EITHER = "compute the declared loss, or declare the one that is computed"

REMEDIES = {
    "micro_batch_token_mean": "divide the sum over each micro-batch by the tokens of the whole optimizer"
    " step, of all ranks and micro-batches; or declare this aggregation",
}
"""By aggregation, where more is known than ``EITHER``."""


class Change(NamedTuple):
    """A change of the declared loss."""

    text: str  # after "the declared loss"
    setup: Mapping[str, Any]  # the settings that differ
    remedy: str = EITHER


def usual_changes(setup: Setup) -> Iterator[Change]:
    """Yield the usual changes of a declared loss."""
    if setup.surrogate == "clip":
        yield Change("without its clip", {"clip_low": NEVER, "clip_high": NEVER, "dual_clip": None})
        yield Change("without its lower clip", {"clip_low": NEVER})
        yield Change("without its upper clip", {"clip_high": NEVER})
        yield Change("without its dual clip", {"dual_clip": None})
        yield Change("without its ratio", {"surrogate": "reinforce"})
    if setup.kl_coef and setup.kl_where == "loss":
        yield Change("without its KL", {"kl_coef": 0.0})
        for factor in (-1.0, 10.0, 0.1, 2.0, 0.5):
            yield Change(f"with {factor:g} times its KL", {"kl_coef": factor * setup.kl_coef})
        for estimator in ESTIMATORS:
            yield Change(f"with a KL by {estimator}", {"kl_estimator": estimator})
        for weight in WEIGHTS:
            yield Change(f"with a KL whose ratio is {weight}", {"kl_weight": weight})
    if setup.correction not in (None, "off"):
        yield Change("without its correction", {"correction": "off"})
    for name in AGGREGATED:
        text = f"with the aggregation {name} ({AGGREGATIONS[name]})"
        yield Change(text, {"aggregation": name}, REMEDIES.get(name, EITHER))
