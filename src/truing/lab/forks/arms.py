"""The arms of an experiment on a run: changes that could show which of its open causes holds it back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from truing.config import Recipe
from truing.doctor.causes.cause import Answer
from truing.doctor.causes.history import History

MOST_ARMS = 4
"""Arms of one experiment: each takes as long as the unchanged forks."""

RATES = {"three times the rate": 3.0, "a third of the rate": 1 / 3}
"""Arms of each experiment: no record of a flat reward excludes both."""

STILL = {"a hundred times the rate": 100.0, "a thousand times the rate": 1000.0}
"""Arms in their place if optimizer steps are too small; the test of that cause is another."""


MEASURED = ("sampling.", "episode.", "env.", "chat.")
"""Tables of the recipe by which rollouts are sampled and paid, in evaluations too."""


@dataclass(frozen=True)
class Arm:
    """A change of the recipe, and why it is tried."""

    name: str
    changes: tuple[str, ...]
    because: str  # the figures of the cause that it is of


def arms_of(history: History, answers: Sequence[Answer]) -> list[Arm]:
    """Return the arms of the found and open causes, most important first, then other learning rates."""
    still = any(each.name == "steps_too_small" and each.state == "found" for each in answers)
    every = [*_of_causes(history, answers), *_of_rates(history, STILL if still else RATES)]
    unique = {arm.changes: arm for arm in reversed(every)}
    return [arm for arm in every if unique[arm.changes] is arm][:MOST_ARMS]


def _of_causes(history: History, answers: Sequence[Answer]) -> Iterator[Arm]:
    """Yield the change of each cause, as far as a fork within the stage can have it."""
    stage = history.stage
    others = {*history.facts.recipe.stages} - {stage} | {"model", "lora", "eval"}
    for answer in answers:
        if answer.state not in ("found", "open"):
            continue
        changes = tuple(each for each in answer.advice.changes if not each.startswith(f"{stage}.steps="))
        if changes and not any(each.partition(".")[0] in others for each in changes):
            yield Arm(answer.title, changes, answer.because)


def _of_rates(history: History, rates: Mapping[str, float]) -> Iterator[Arm]:
    key = f"{history.stage}.learning_rate"
    for name, factor in rates.items():
        yield Arm(name, (f"{key}={factor * history.rate:g}",), f"the rate is {history.rate:g}")


def confounded(arm: Arm, recipe: Recipe) -> list[str]:
    """Return the changes of an arm that rewards of the same policy depend on.

    Evaluations sample as the recipe says, but at a temperature of their own. A pair of forks would then
    differ by what is measured, and not by what was learnt.
    """
    own = ("sampling.temperature=",) if recipe.eval.tasks else ()
    return [each for each in arm.changes if each.startswith(MEASURED) and not each.startswith(own)]


def fork_step(history: History, kept: Sequence[int]) -> int:
    """Return the steps of the checkpoint that forks begin with: the last before a fall, else the newest.

    Args:
        history: of the run.
        kept: steps of the stage that have a checkpoint, ascending; at least one.
    """
    if not history.broke:
        return kept[0] if history.trend.fell else kept[-1]
    before = history.rewarded[history.broke - 1].step + 1
    return max((step for step in kept if step <= before), default=kept[0])
