"""REF002: The reference is not the policy at the start of the stage.

What: Before the first optimizer step of a stage, reference and policy have the same weights, and still give
the same tokens different probabilities.

Why it is silent: The KL begins somewhat above 0 and rises from there, as it would from 0. The KL term draws
the policy to another model, or to itself on other inputs: an active adapter, the base instead of the state
after supervised fine-tuning, another temperature, another prompt.

How it is measured: At the first step of a stage the rule compares the reference's log-probabilities
with those of the unmoved policy, at each sampled token: the trainer's own, or the sampler's if the record has
later forwards alone. It is proven if a plain forward finds the policy's numbers right, and most tokens
differ.

Healthy look-alikes: Rounding, as between any two forwards; in bfloat16 its standard deviation is 0.05. In
another trainer an intended reference of another model: the rule reports it, and never as proof. A resumed
stage: the rule checks its first step alone.

Fix: Copy the policy at the start of the stage, or disable the adapter while it adds nothing. Score both
with the same function, ids, sampling parameters and support.

References: https://arxiv.org/abs/2402.03300, docs/control.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.oracle.kl import difference_sizes
from truing.doctor.rounding_tolerance import computes_in_float32, stage_rounding, tolerance, typical
from truing.doctor.rule import Rule, has_reference
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count

MEDIAN, K3 = 0.05, 0.01
"""Nats, more than the noise of two forwards in bfloat16, with median 0.03 and k3 0.001."""

FLOOR, APART = 1e-3, 1e-2
"""Nats, and nats from a plain forward in float32; both without a measured rounding of a plain forward."""


class Measured(NamedTuple):
    """The difference between reference and policy before the first optimizer step."""

    tokens: int
    median: float
    largest: float
    k3: float
    null: float | None  # nats, the trainer from itself, on a CPU
    plain: float | None  # nats, trainer or sampler from a plain forward, on a CPU
    rounding: float | None  # nats, a plain forward from itself, on a CPU
    ours: bool  # whether the recipe declares the start of the stage as reference
    worst: Places


def measure(step: Step) -> Measured:
    """Compare policy and reference, at all sampled tokens that both scored."""
    policy_N = at_first(step)
    difference_N = step.tokens["ref_logprob"].double() - policy_N
    apart_n = difference_N[~difference_N.isnan()]
    known = (*normal(step), step.setup.trainer == "truing")
    if not len(apart_n):
        return Measured(0, 0.0, 0.0, 0.0, *known, places(step, difference_N > 0))
    return Measured(
        len(apart_n),
        *difference_sizes(apart_n),
        *known,
        places(step, difference_N.abs() == apart_n.abs().max(), len(apart_n)),
    )


def normal(step: Step) -> tuple[float | None, float | None, float | None]:
    """Return differences in float32: trainer from itself; either from a plain forward; that from itself.

    In nats; None is unknown. The second is of this step, the others are the last measurements in the stage.
    """
    facts = step.facts_of_stage
    compared = [each["plain"] for each in facts if "plain" in each]
    if compared and not computes_in_float32(compared[-1].get("device", "cpu")):
        return None, None, None
    plain = step.facts.get("plain", {})
    apart = [plain[name] for name in ("trainer", "sampler") if name in plain]
    nulls = [each["null"]["logprob"] for each in facts if "null" in each]
    return nulls[-1] if nulls else None, max(apart, default=None), stage_rounding(step)


def at_first(step: Step) -> Tensor:
    """Return the policy's log-probabilities before the first optimizer step: [N] float64, NaN if unknown."""
    inner_N = step.optimizer_step_of_sample[step.sample_of_token]
    logprob_N = nothing_N = torch.full((len(step.sample_of_token),), torch.nan, dtype=torch.float64)
    if not step.setup.dropout:
        logprob_N = step.at_first_optimizer_step("new_logprob")
    if "sampler_logprob" in step.tokens and step.setup.on_policy:
        sampler_N = step.tokens["sampler_logprob"].double()
        logprob_N = torch.where(logprob_N.isnan() & (inner_N >= 0), sampler_N, logprob_N)
    if "origin" in step.tokens:
        logprob_N = torch.where(step.tokens["origin"] == Origin.SAMPLED, logprob_N, nothing_N)
    return logprob_N


def judge(step: Step) -> Iterator[Claim]:
    """Claim more than the normal difference between two forwards of the same weights."""
    measured = measure(step)
    most = tolerance(measured.rounding, measured.null, FLOOR, measured.tokens)
    bound = math.inf if most is None else most
    most_off = measured.median > (typical(measured.rounding, measured.tokens) or math.inf)
    if measured.median > MEDIAN or measured.k3 > K3 or measured.largest > bound or most_off:
        # the policy's own scores are right, and most tokens differ: those of the reference are wrong
        right = measured.plain is not None and measured.plain <= (
            max(APART, bound) if measured.rounding is None else bound
        )
        sure = measured.ours and right and (measured.median > bound or most_off)
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            "before the first optimizer step the reference differs from the policy by up to"
            f" {measured.largest:.3g} nats",
            got=f"median {measured.median:.2g} nats over {with_count(measured.tokens, 'token')}, k3"
            f" {measured.k3:.2g}",
            expected="0 up to rounding"
            + ("" if measured.null is None else f": the trainer differs from itself by {measured.null:.2g}"),
            **measured.worst.claim_fields,
            specificity=1.5,
        )


def compared() -> Step:
    """Return the first step of a stage; the reference is the policy."""
    step = example_step(setup={"kl_coef": 0.05, "kl_where": "loss", "kl_estimator": "k3"})
    return changed_step(step, ref_logprob=step.tokens["new_logprob"])


def example() -> Step:
    """The reference is the base, and the stage begins after supervised fine-tuning."""
    step = compared()
    noise_N = 0.5 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(0))
    return with_token_gradients(changed_step(step, ref_logprob=step.tokens["new_logprob"] + noise_N))


def rounded() -> Step:
    """The reference was scored in other micro-batches."""
    step = compared()
    noise_N = 2e-5 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(0))
    return changed_step(
        step, ref_logprob=step.tokens["new_logprob"] + noise_N, facts={"null": {"logprob": 4e-5}}
    )


RULE = Rule(
    code="REF002",
    name="reference-not-the-start",
    kind="E",
    needs=("ref_logprob", "new_logprob"),
    taints=("reference", "policy"),
    applies=lambda step: step.is_first_of_stage and step.step == 0 and has_reference(step),
    judge=judge,
    example=example,
    lookalikes=(compared, rounded),
)
