"""OPT005: The gradient is 0.

What: For five steps in a row the gradient is exactly 0, although tokens have advantages, or the batch has
demonstrations.

Why it is silent: A loss near 0 is right in GRPO, so it raises no alarm. A gradient of 0 with it means a
detached loss, an empty mask, or weights that require no gradient.

How it is measured: The norms of this step and the four before it, in steps with a largest advantage above
0, a token gradient and an uncertain token. For a trainer without recorded advantages: in steps whose groups
do not all have equal rewards, or, if that share is unknown, whose rewards differ. A log without an entropy
counts as uncertain: answers with unequal rewards differ. If a log has a record for every ten steps, the
norm is of the last of them alone, and the share of groups of equal reward is a mean. The probability that
all groups of that one step have equal rewards is at most that share (half, if it is unknown), and the rule
multiplies the probabilities of records in a row. If nothing in a log tells whether rewards differ, a
gradient of 0 is not checked.

Healthy look-alikes: Steps in which all groups have equal rewards. A policy that is certain of every token:
its log-probabilities are 0, and so is their gradient. A clip that cuts every token. A trainer that does not
report the norm, and logs 0.

Fix: Check whether a gate leaves out every token (`gates.min_ratio`, `gates.max_ratio`), or the loss requires
no gradient, and trace that back: `no_grad`, `detach`, a reference scored in place of the policy. If the
reward rises nevertheless, the trainer does not report its norm.

References: https://github.com/huggingface/trl/issues/3452, https://arxiv.org/abs/1710.03740
"""

import math
from collections.abc import Iterator, Mapping
from itertools import takewhile

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

STEPS = 5

CHANCE = 1e-6
"""Of a row of records, each of several steps, all of whose last ones have equal rewards."""

HALF = 0.5
"""The probability of that for one record, if the share of groups of equal reward is unknown."""

SPREADS = ("advantage/max_abs", "group/zero_variance_share", "reward/any_std", "reward/std")
"""What tells whether rewards differ: the first that is known counts."""


def _known(numbers: Mapping[str, float], name: str) -> bool:
    return math.isfinite(numbers.get(name, math.nan))


def _has_signal(numbers: Mapping[str, float], supervised: bool) -> bool:
    """Return whether a step has a signal, by its metrics; not where no token is trained (MSK009)."""
    if numbers.get("tokens/trained", 1.0) == 0:
        return False
    if supervised:
        return numbers.get("loss/supervised", numbers.get("loss/total", 0.0)) > 1e-3
    entropy = next(
        (numbers[name] for name in ("entropy/mean", "entropy/sampled") if _known(numbers, name)), 1.0
    )
    return _spread(numbers) > 0 and entropy > 1e-2 and numbers.get("clip/active_share", 1.0) > 0


def _spread(numbers: Mapping[str, float]) -> float:
    """Return a number above 0 if rewards differ: then some answers have advantages, at any scale."""
    name = next((name for name in SPREADS if _known(numbers, name)), "")
    return 1 - numbers[name] if name == "group/zero_variance_share" else numbers.get(name, 0.0)


def _signal(numbers: Mapping[str, float]) -> str:
    """Return what shows that rewards differ."""
    name = next((name for name in SPREADS if _known(numbers, name)), "")
    if name == "advantage/max_abs":
        return f"advantages of up to {numbers[name]:.3g}"
    if name == "group/zero_variance_share":
        return f"unequal rewards in {1 - numbers[name]:.0%} of the groups"
    return f"rewards that differ by {numbers.get(name, 0.0):.3g} (their deviation)"


def judge(step: Step) -> Iterator[Claim]:
    """Claim several steps in a row with a signal and no gradient: a single one may be chance."""
    supervised = step.setup.algo in ("sft", "rft")
    if step.metrics["grad/norm"] == 0 and not (supervised or any(_known(step.metrics, x) for x in SPREADS)):
        yield Claim(Verdict.NOT_CHECKED, "whether rewards differ, beside a gradient norm of exactly 0")
    without = list(
        takewhile(
            lambda each: each.get("grad/norm") == 0 and _has_signal(each, supervised),
            [step.metrics, *(past.metrics for past in reversed(step.latest))],
        )
    )
    # that they had no signal, which demonstrations always have, and records of one step show
    chance = math.prod(each.get("group/zero_variance_share", HALF) for each in without)
    if len(without) >= STEPS and (supervised or step.setup.logged_every == 1 or chance < CHANCE):
        signal = "demonstrations" if supervised else _signal(step.metrics)
        yield Claim(
            Verdict.SUSPECT,
            f"{len(without)} steps in a row had a signal, and a gradient of exactly 0",
            got=f"a norm of 0 beside {signal}",
            expected="a gradient: without one no weight learns, at any learning rate",
            specificity=1.5,
        )


def nothing_trained() -> Step:
    """Every rollout was cut, and cut ones are masked: no token is under a loss."""
    step = example()
    past = [past_step(number, metrics={**step.metrics, "tokens/trained": 0.0}) for number in range(4)]
    return changed_step(step, metrics={"tokens/trained": 0.0}, past=past)


def example() -> Step:
    """The loss is detached."""
    numbers = {"grad/norm": 0.0, "advantage/max_abs": 1.0, "entropy/mean": 1.0}
    still = {"weights": {"before": "a", "after": "a", "next": "a"}}
    return changed_step(
        example_step(),
        metrics=numbers,
        facts=still,
        past=[past_step(number, metrics=numbers) for number in range(4)],
    )


def equal() -> Step:
    """All groups of the last steps have equal rewards."""
    numbers = {"grad/norm": 0.0, "advantage/max_abs": 0.0, "entropy/mean": 1.0}
    return changed_step(example(), past=[past_step(number, metrics=numbers) for number in range(4)])


def every_fifth() -> Step:
    """A log of every fifth step; most groups have equal rewards, and in some steps all have."""
    numbers = {"grad/norm": 0.0, "group/zero_variance_share": 0.8, "entropy/mean": 0.1}
    past = [past_step(number, metrics=numbers) for number in range(9)]
    return changed_step(example_step(setup={"logged_every": 5}), metrics=numbers, past=past)


RULE = Rule(
    code="OPT005",
    name="no-gradient",
    kind="S",
    needs=("metrics.grad/norm",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(nothing_trained, equal, every_fifth),
)
