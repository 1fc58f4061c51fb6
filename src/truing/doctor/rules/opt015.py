"""OPT015: A number that must be finite is NaN or infinite.

What: A loss, a reward, a KL, a gradient norm, an entropy, a value or a learning rate is NaN or infinite. Each
is a mean over tokens or rollouts, so one bad number among them is enough.

Why it is silent: Training goes on. An optimizer without a check writes NaN into every weight, a gradient
scaler skips the step without a message, and charts leave the points out. Comparisons with NaN are false,
so that alarms with a threshold stay silent too.

How it is measured: The recorded numbers of each step. Of another trainer's log also columns that no other
rule reads, by their names; not those of evaluations, nor those of one reward function among several, which
may have judged no rollout.

Healthy look-alikes: One infinite gradient norm under a gradient scaler, which is searching for its factor.
A number that was not measured is absent, and no finding.

Fix: Look at the first such step, for what came first: an empty answer or a mask without a token (a mean
over nothing), a division by a deviation of 0, a log-probability of −∞ that is multiplied by 0, float16.
Return to a checkpoint from before that step: later weights may be NaN.

References: https://arxiv.org/abs/1710.03740
"""

import math
import re
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

WORDS = re.compile(
    r"(?<![a-z])(\w*loss|rewards?|score|(\w*_)?kl|(\w*_)?grad_norm|norm|critic_norm|lr|learning_rate"
    r"|entropy(_loss)?|values?|vpred\w*|returns?|advantages?|logps?|mismatch)(?![a-z])"
)
"""In names of numbers that are finite in every healthy step."""
REWARD = re.compile(r"reward|score")


def must_be_finite(name: str) -> bool:
    """Return whether a number with this name is finite in every healthy step."""
    return WORDS.search(name.lower()) is not None and "explained" not in name  # equal returns have no score


def judge(step: Step) -> Iterator[Claim]:
    """Claim any number that must be finite and is not, by the log's own name."""
    broken = {
        step.setup.columns.get(name, name): value
        for name, value in step.metrics.items()
        if not math.isfinite(value) and must_be_finite(name)
    }
    if broken:
        only_rewards = all(REWARD.search(name) for name in broken)
        yield Claim(
            Verdict.SUSPECT,
            ", ".join(f"{name} is {value:g}" for name, value in broken.items()),
            expected="finite numbers",
            remedy="find the rollout whose reward is not a number: a reward function divided by 0, or took a"
            " logarithm of 0. Advantages of its whole group are NaN, and so is the step"
            if only_rewards
            else "",
            specificity=2,
        )


def example() -> Step:
    """One token of one answer has a log-probability of −∞ under the reference."""
    return changed_step(example_step(), metrics={"kl_all/k3": math.nan, "loss/kl": math.nan})


def unmeasured() -> Step:
    """A critic without a score, and a ratio that overflows where no token is trained."""
    return changed_step(example_step(), metrics={"ratio/max": math.inf})


RULE = Rule(
    code="OPT015",
    name="not-finite",
    kind="S",
    needs=(),
    taints=("sft", "policy"),
    applies=lambda step: any(must_be_finite(name) for name in step.metrics),
    judge=judge,
    example=example,
    lookalikes=(unmeasured,),
)
