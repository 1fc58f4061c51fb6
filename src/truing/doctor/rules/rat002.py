"""RAT002: Before the first optimizer step the trainer's log-probabilities differ from the sampler's.

What: The sampler records the log-probability of each sampled token. Before the first optimizer step of a
batch the trainer has the same weights, and scores the same tokens. Both should agree, and the ratio
exp(trainer − sampler) should be 1 at every token. Here it is not.

Why it is silent: A wrong ratio looks like a policy that has moved. The clip cuts unmoved tokens, the loss
weighs advantages as if they had moved, and the reward still rises a little, so the learning rate looks like
the cause.

How it is measured: The rule compares both log-probabilities at each sampled token, of samples whose numbers
are those of the first optimizer step of their batch. Two forwards never agree to the last digit: the normal
difference is the trainer from itself, on the same tokens in another batch. In another precision on a CPU,
beside a dense engine whose publication was compared, it is forty times the change by random rounding, or five
times the engine's difference on the publication's rows and turns. Without any of these measurements, a
difference counts only if its median, or k3 (an estimate of the KL between the two), is far above that of
engines in bfloat16. The pattern shows the cause: a few samples or all, one direction, or a shift by a token.
It is proven if a plain forward in float32 finds one of the two wrong, or if most tokens differ by more than
the rounding measured in the stage, or if one differs by a thousand times that from an engine whose
publication was proven in float32 (no mixture of experts, where a tie may do this); never on a GPU.

Healthy look-alikes: Ratios of exactly 1: that is right, and the gradient is not 0. Differences of 5e-5 nats
in float32, or with a standard deviation of 0.05 in bfloat16. A second optimizer step of the same batch, whose
weights have moved. The rule does not apply with dropout, or with Truing's correction. TRL's is on
by default beside vLLM, and no reason for a difference that no engine leaves.

Fix: SMP004 and SMP005 show which of the two is wrong. Then look for a difference between them. Divide
logits, not log-probabilities, by the temperature, on both sides. Normalise over the possible ids (top-k,
top-p). Score the sampled ids themselves, not their text encoded again, with the positions and the attention
mask of that sample alone.

References: https://github.com/huggingface/trl/issues/6789, https://github.com/huggingface/trl/issues/4159,
https://arxiv.org/abs/2510.26788
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.difference_pattern import Pattern, pattern_of
from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.oracle.kl import difference_sizes
from truing.doctor.rounding_tolerance import (
    coarse_tolerance,
    engine_tolerance,
    is_exact,
    tolerance,
    typical,
)
from truing.doctor.route_difference import are_routes_wrong
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.ref002 import normal
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count

MEDIAN, K3 = 0.05, 0.01
"""Nats, more than the noise of an engine in bfloat16, with median 0.03 and k3 0.001."""

FLOOR, APART = 1e-3, 1e-2
"""Nats, and nats from a plain forward in float32; both without a measured rounding of a plain forward."""

FAR = 1000
"""Multiples of rounding that no token reaches."""

GROWN, LEAST = 100, 1e-4
"""Times the largest difference of an earlier step of the stage, and nats: rounding does not grow so."""

NO_ENGINE = 0.2, 0.1
"""Median, nats, and k3: more than any precision or kernel of an engine leaves."""


class Measured(NamedTuple):
    """The difference between sampler and trainer, its pattern, and the normal difference."""

    tokens: int
    median: float
    largest: float
    k3: float
    pattern: Pattern
    null: float | None  # nats, the trainer from itself, on a CPU
    plain: float | None  # nats, the farther of the two from a plain forward, on a CPU
    rounding: float | None  # nats, a plain forward from itself, on a CPU
    engine: tuple[float, float]  # tolerance of the sampler's engine for a token, and for the median
    exact: bool  # a dense engine whose publication was proven in float32
    coarse: float | None  # nats that rounding explains in another precision; None if it is not measured
    quiet: tuple[int, float]  # the step of the stage before with the smallest largest difference; nats
    worst: Places


def measure(step: Step) -> Measured:
    """Compare sampler and trainer, at all tokens of the first optimizer step."""
    sampler_N, new_N = step.stream("sampler_logprob"), step.at_first_optimizer_step("new_logprob")
    first_N = _sampled(step) & ~new_N.isnan()
    difference_N = torch.where(first_N, new_N - sampler_N, torch.nan)
    apart_n = difference_N[~difference_N.isnan()]
    median, largest, k3, where_N = math.nan, 0.0, 0.0, difference_N > 0
    if len(apart_n):
        median, largest, k3 = difference_sizes(apart_n)
        where_N = difference_N.abs() == largest
    else:  # the record has no pass of the first optimizer step: the trainer's metrics of it remain
        largest, k3 = (step.metrics.get(f"mismatch/{name}", 0.0) for name in ("max_abs", "k3"))
    return Measured(
        len(apart_n),
        median,
        largest,
        k3,
        pattern_of(step, sampler_N, new_N, first_N),
        *normal(step),
        engine_tolerance(step.facts),
        is_exact(step.facts),
        coarse_tolerance(step),
        min(_of_past(step), key=lambda each: each[1], default=(0, math.inf)),
        places(step, where_N, len(apart_n) or None),
    )


def _of_past(step: Step) -> list[tuple[int, float]]:
    """Return the number and the largest difference of each earlier step of the stage that has one."""
    name = "mismatch/max_abs"
    return [(past.step, past.metrics[name]) for past in step.past_of_stage if name in past.metrics]


def _sampled(step: Step) -> Tensor:
    """Return the tokens that the policy chose: [N] bool."""
    return step.tokens["origin"] == Origin.SAMPLED if "origin" in step.tokens else step.tokens["policy_mask"]


def judge(step: Step) -> Iterator[Claim]:
    """Claim more than the trainer's difference from itself; proof needs a plain forward in the stage."""
    measured = measure(step)
    if not measured.tokens and not measured.largest and not measured.k3:
        yield Claim(Verdict.NOT_CHECKED, "the trainer's log-probabilities in the first optimizer step")
        return
    most = tolerance(measured.rounding, measured.null, FLOOR, measured.worst.compared)
    if most is None:
        most = measured.coarse
    bound = math.inf if most is None else max(most, measured.engine[0])
    apart = max(APART, bound) if measured.rounding is None else bound
    expected = (
        "0 up to rounding; the trainer's difference from itself is not measured"
        if most is None
        else f"within {bound:.2g}: rounding in the engine's precision"
        if measured.null is None and measured.rounding is None
        else f"within {bound:.2g}: the trainer differs from itself by {measured.null:.2g}"
        if measured.rounding is None
        else f"within {bound:.2g}: a plain forward rounds by {measured.rounding:.2g}"
    )
    most_off = measured.median > max(
        typical(measured.rounding, measured.tokens) or math.inf, measured.engine[1]
    )
    at, quiet = measured.quiet
    grown = measured.median > max(GROWN * quiet, LEAST)
    if measured.median > MEDIAN or measured.k3 > K3 or measured.largest > bound or most_off or grown:
        # a plain forward finds one of the two wrong; or an earlier one measured rounding
        plain_differs = measured.plain is not None and (measured.plain > apart or most_off)
        far = measured.exact and measured.largest > FAR * bound
        sure = plain_differs or (measured.rounding is not None and (far or measured.median > bound))
        sure &= not are_routes_wrong(step)  # then the two compute with other experts (SMP012)
        grew = f"; in step {at + 1} by no more than {quiet:.2g}: other weights, not rounding" if grown else ""
        other = grown or (measured.median > NO_ENGINE[0] and measured.k3 > NO_ENGINE[1])
        yield Claim(
            Verdict.PROVEN if sure else Verdict.EVIDENCE if other else Verdict.SUSPECT,
            f"before the first optimizer step trainer and sampler differ by up to {measured.largest:.3g} nats"
            f" (k3 {measured.k3:.2g}){grew or measured.pattern.text}",
            got=f"median {measured.median:.2g} nats over {with_count(measured.tokens, 'token')}"
            if measured.tokens
            else "",
            expected=expected,
            **measured.worst.claim_fields,
            specificity=1.5,
        )


def example() -> Step:
    """The trainer divides log-probabilities, not logits, by a temperature of 0.8."""
    healthy = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    return with_token_gradients(changed_step(healthy, new_logprob=healthy.tokens["new_logprob"] / 0.8))


def noisy() -> Step:
    """An engine in bfloat16: differences with a standard deviation of 0.05, on either side."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    noise_N = 0.05 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(0))
    return with_token_gradients(changed_step(step, new_logprob=step.tokens["new_logprob"] + noise_N))


def another_engine() -> Step:
    """An engine in bfloat16 beside a trainer in float32; its publication measured the difference."""
    rows = {"largest": 0.12, "median": 0.02, "tolerance": 0.2}
    return changed_step(
        noisy(),
        facts={"null": {"logprob": 3e-5, "rounding": 8e-6}, "publication": {"version": 0, "rows": rows}},
    )


def far_in_bfloat16() -> Step:
    """An engine in bfloat16: one token is far off, as at a tie of its attention."""
    step = another_engine()
    new_N = step.tokens["new_logprob"].clone()
    new_N[step.tokens["policy_mask"].nonzero()[0]] += 0.4
    return with_token_gradients(changed_step(step, new_logprob=new_N))


def later() -> Step:
    """Numbers of a second optimizer step: the weights have moved, and the ratio is no longer 1."""
    step = example()
    return with_optimizer_steps(step, dict.fromkeys(range(len(step.samples)), 1))


def rounded_in_bfloat16() -> Step:
    """In bfloat16 single tokens are off, as at the publication's turns."""
    return beside_bfloat16(off=0.12, turns=0.073)


def truncated_in_bfloat16() -> Step:
    """In bfloat16 rounding decides which ids top-k keeps."""
    return beside_bfloat16(off=0.12, truncated=True)


def beside_bfloat16(off: float, turns: float = 0.002, *, truncated: bool = False) -> Step:
    """Return a step in bfloat16 whose publication was compared; one token is off."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    new_N = step.tokens["new_logprob"].clone()
    new_N[step.tokens["policy_mask"].nonzero()[0]] += off
    device = "cpu, torch.bfloat16"
    compared = {
        "rows": {"largest": 0.003, "tolerance": 0.2},
        "turns": {"largest": turns, "truncated": truncated},
    }
    receipt = {"version": 0, "layers": {}, **compared}
    facts = {
        "null": {"logprob": 2e-3, "rounding": 1.2e-3},
        "plain": {"device": device},
        "publication": receipt,
    }
    return with_token_gradients(changed_step(step, new_logprob=new_N, facts=facts))


RULE = Rule(
    code="RAT002",
    name="first-ratio-not-one",
    kind="E",
    needs=("sampler_logprob", "new_logprob", "policy_mask", "setup.on_policy"),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step) and step.setup.algo not in ("sft", "rft") and step.setup.on_policy is not False
    ),
    judge=judge,
    example=example,
    lookalikes=(noisy, another_engine, later, rounded_in_bfloat16, truncated_in_bfloat16),
)
