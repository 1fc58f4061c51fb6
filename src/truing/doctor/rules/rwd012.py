"""RWD012: The evaluation after a stage is worse than before it.

What: The paired difference of the evaluations before and after the stage is below 0, with its interval.

Why it is silent: The loss of a policy gradient is independent of the reward, and the training reward is of
other tasks, sampled otherwise. A run that makes its policy worse ends like any other.

How it is measured: The rewards of the same tasks in the evaluation before the stage and in the last one so
far, as differences by task; their interval of 95 %. A fork's stage begins at its checkpoint.

Healthy look-alikes: A small fall within the interval. In one of 40 runs without any effect the interval is
below 0 by chance. A stage that trades evaluated tasks for others that it trains.

Fix: `truing why RUN` has the causes. Evaluate within the stage (eval.every) to see when it fell, and return
to the best checkpoint (`truing train RECIPE --out RUN --resume --step N`), with a smaller learning rate.

References: https://arxiv.org/abs/2411.00640
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.example_steps import example_evaluation, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim a loss whose interval excludes 0."""
    gain = step.gain
    assert gain is not None
    if gain.is_loss:
        yield Claim(
            Verdict.SUSPECT,
            f"the evaluation fell by {-gain.paired.mean:.3f} over the stage",
            got=str(gain),
            expected="no loss: an interval that reaches 0",
            specificity=1.0,
        )


def _evaluated(before: int, after: int) -> Step:
    """Return a stage that solves so many of 50 tasks before and after it."""
    solved = {"base": before, "after_grpo": after}
    return example_step(
        evaluated=[
            example_evaluation(name, [float(task < count) for task in range(50)])
            for name, count in solved.items()
        ]
    )


def example() -> Step:
    """Ten of twenty tasks are lost."""
    return _evaluated(20, 10)


def same() -> Step:
    """Three of twenty tasks are lost."""
    return _evaluated(20, 17)


def better() -> Step:
    """Ten more tasks are solved."""
    return _evaluated(20, 30)


RULE = Rule(
    code="RWD012",
    name="evaluation-fell",
    kind="S",
    needs=("gain",),
    taints=("policy",),
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(same, better),
)
