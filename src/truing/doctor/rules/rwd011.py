"""RWD011: A recorded mean or loss is not that of the recorded samples.

What: `reward/mean`, `length/mean` or an entropy of a step differs from the mean over the samples that
the step has on record. Or a recorded term of the loss, such as `loss/policy`, is not that of the recorded
log-probabilities and advantages.

Why it is silent: A curve is what people look at, and nothing else shows what it should be. A mean over the
rewards of one rank, over the best rollouts, over tokens of the prompt, or of the step before has a plausible
size and a plausible noise. A reward that rises only in the metric costs weeks. A loss that is reported of one
micro-batch, or without its weight, is compared with other runs all the same.

How it is measured: The mean of the rewards of all rollouts with one, each rollout once; the mean number of
sampled or demonstrated tokens of a sample; minus the mean log-probability that the sampler recorded; the
mean entropy of the trained tokens. Each is computed from the samples, and compared with the recorded number.
So is each term of the loss of the last optimizer step with a forward, by a second implementation of the
declared formulas.

Healthy look-alikes: A rollout of several samples counts once in the reward, and failed ones have none.
Samples that are recorded and not trained count. Demonstrations beside rollouts are not answers; there
lengths are not compared. Logs of other trainers, whose numbers may be means over steps, are not compared. The
policy loss is near 0 in GRPO, since terms cancel: the tolerance is of their sizes.

Fix: Compute metrics from what is recorded, after ranks have exchanged their samples.

References: docs/metrics.md
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.losses import expected_losses
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

ROUNDING = 1e-4
"""Of the number, and absolute: float32 leaves 1e-6."""

SMALLEST = 1e-8
"""Of a loss: below it nothing is compared."""


class Mean(NamedTuple):
    """A recorded mean, and the one of the samples."""

    name: str
    recorded: float
    of_samples: float
    rounding: float = 0.0  # by which rounding may move it


def _compared(step: Step) -> list[Mean]:
    """Compute each mean and each term of the loss that is on record."""
    known = [
        Mean(name, step.metrics[name], mean, ROUNDING + ROUNDING * abs(mean))
        for name, mean in _means(step).items()
        if name in step.metrics and not math.isnan(mean)
    ]
    return [*known, *_losses(step)]


def _losses(step: Step) -> Iterator[Mean]:
    """Compute the terms of the last optimizer step's loss; not where settings have no closed form."""
    if step.setup.plain is False or not step.has("new_logprob"):
        return
    # one without a signal has no forward, and no loss
    computed = [
        each for _, each in step.at_each_optimizer_step() if each.tokens["new_logprob"].isfinite().any()
    ]
    for name, expected in expected_losses(computed[-1]).items() if computed else ():
        if f"loss/{name}" in step.metrics:
            recorded = step.metrics[f"loss/{name}"]
            yield Mean(f"loss/{name}", recorded, expected.value, expected.rounding + SMALLEST)


def _means(step: Step) -> Mapping[str, float]:
    rewards = {sample.rollout_id: sample.reward for sample in step.samples}.values()
    origin_N, sampled_N = step.tokens["origin"], step.stream("sampler_logprob").isfinite()
    answer_N = (origin_N == Origin.SAMPLED) | (origin_N == Origin.DEMO)
    beside = bool((origin_N == Origin.DEMO).any() and (origin_N == Origin.SAMPLED).any())
    known_N = sampled_N & (origin_N == Origin.SAMPLED)
    policy_N, supervised_N = step.stream("policy_mask").bool(), step.stream("supervised_mask").bool()
    trained_N = policy_N if bool(policy_N.any()) else supervised_N
    return {
        "reward/mean": _mean(torch.tensor([each for each in rewards if math.isfinite(each)])),
        "length/mean": math.nan if beside else float(answer_N.sum()) / max(len(step.samples), 1),
        "entropy/mean": _mean(_known(step.stream("entropy")[trained_N])),
        "entropy/raw": _mean(_known(step.stream("raw_entropy")[trained_N])),
        "entropy/sampled": -_mean(step.stream("sampler_logprob")[known_N]),
    }


def _known(values: torch.Tensor) -> torch.Tensor:
    return values[~values.isnan()]


def _mean(values: torch.Tensor) -> float:
    return float(values.double().mean()) if len(values) else math.nan


def judge(step: Step) -> Iterator[Claim]:
    """Claim each mean that differs beyond rounding."""
    for each in _compared(step):
        if not abs(each.recorded - each.of_samples) <= each.rounding:
            is_loss = each.name.startswith("loss/")  # to which a fault of the loss itself leads too
            whose = "that" if is_loss else "the mean"
            yield Claim(
                Verdict.PROVEN,
                f"{each.name} is not {whose} of the step's samples",
                got=f"{each.recorded:.5g} is recorded",
                expected=f"{each.of_samples:.5g}",
                specificity=0.5 if is_loss else 1.5,
            )


def _with_means(**changes: float) -> Step:
    step = example_step()
    means = {name: value for name, value in _means(step).items() if not math.isnan(value)}
    step = changed_step(step, facts={"lengths": {}})  # which a step has that Truing recorded
    return changed_step(step, metrics=means | {name.replace("_", "/"): x for name, x in changes.items()})


def example() -> Step:
    """The recorded reward is that of the best rollouts."""
    return _with_means(reward_mean=1.0)


def loss_of_one_micro_batch() -> Step:
    """The recorded loss is that of the last micro-batch."""
    return changed_step(_with_means(), metrics={"loss/policy": 0.25})


def as_recorded() -> Step:
    """Means of all samples, with the rounding of float32."""
    step = _with_means()
    loss = expected_losses(step)["policy"].value + 1e-7
    metrics = {"reward/mean": step.metrics["reward/mean"] * (1 + 1e-6), "loss/policy": loss}
    return changed_step(step, metrics=metrics)


RULE = Rule(
    code="RWD011",
    name="mean-not-of-samples",
    kind="E",
    needs=("origin", "facts.lengths"),
    taints=(),
    applies=lambda step: step.setup.trainer == "truing",
    judge=judge,
    example=example,
    lookalikes=(as_recorded,),
)
