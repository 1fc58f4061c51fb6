"""REF003: The reference follows the policy.

What: Weights have moved over several steps, the recipe declares a fixed reference, and the KL between
them is still 0. They are one model, or the trainer copies the reference again each time.

Why it is silent: A KL of 0 looks like a policy that learns without moving. The term is in the loss with the
declared coefficient, but nothing holds the policy.

How it is measured: The rule compares the reference's log-probabilities with the policy's before the step,
at uncertain tokens. It is proven if all are equal bit for bit, the KL of the previous step was exactly 0
too, and steps before that had a gradient, a rate, and moved weights. Equality up to rounding is suspect,
once the rates of those steps add up to enough.

Healthy look-alikes: A KL of 0 at the first step. Steps without a gradient: with the KL alone in the
loss it is exactly 0 at its minimum, and no weight moves. A tiny learning rate, which float32 cannot
resolve. The first step of an adapter, which moves one of its two factors. Declared syncs.

Fix: Copy the weights when making the reference, instead of keeping the same tensors. Score it with its own
adapter, or without one.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.rule import Rule, has_reference
from truing.doctor.rules.ref002 import at_first
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.facts import Facts
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

CERTAIN = 1e-3
"""Nats: the only possible token has a log-probability of 0, for any weights."""

TOKENS = 64


def _moved(past: StepNumbers) -> bool:
    """Return whether a step had a gradient and a rate, and no unmoved digest."""
    weights = past.facts.get("weights")
    numbers = past.metrics
    signal = numbers.get("grad/norm", numbers.get("advantage/max_abs", 0.0))  # of another trainer's step
    had_gradient = signal > 0 and numbers.get("lr", 0.0) > 0
    return had_gradient and not (weights and weights["before"] == weights["after"])


def judge(step: Step) -> Iterator[Claim]:
    """Claim equality at all tokens after two steps that moved weights."""
    policy_N, ref_N = at_first(step), step.tokens["ref_logprob"].double()
    compared_N = ~(policy_N.isnan() | ref_N.isnan()) & (policy_N.abs() > CERTAIN)
    compared = places(step, compared_N)
    rates = [each.metrics["lr"] for each in step.past_of_stage if _moved(each)]
    if compared.tokens < TOKENS or len(rates) < 2:
        return
    apart_n = (policy_N - ref_N)[compared_N].abs()
    equal, largest = int((apart_n == 0).sum()), float(apart_n.max())
    kl_before = step.past_of_stage[-1].metrics.get("kl_all/k3")
    exact = equal == compared.tokens and kl_before == 0 and min(rates) >= 1e-6
    near = largest <= 5e-5 and sum(rates) >= 1e-4
    if exact or near:
        yield Claim(
            Verdict.PROVEN if exact else Verdict.SUSPECT,
            f"after {with_count(len(rates), 'step')} that moved weights the reference still gives"
            f" {'exactly ' if exact else ''}the policy's log-probabilities",
            got=f"{equal} of {compared.tokens} are equal bit for bit, the largest"
            f" difference is {largest:.2g} nats",
            expected="a reference that stays at the start of the stage",
            **compared.claim_fields,
            specificity=2,
        )


def _later(step: Step, kl: float) -> Step:
    """Return the step as the fourth step of its stage."""
    moved: Facts = {"weights": {"before": "x", "after": "a", "next": "a"}}
    numbers = {"grad/norm": 1.0, "lr": 1e-3, "kl_all/k3": kl}
    past = [StepNumbers("grpo", number, numbers, moved) for number in range(3)]
    return drawn_by(with_token_gradients(changed_step(step, past=past)), "a", 3)


def followed() -> Step:
    """A fourth step of a policy that has left its reference."""
    step = example_step(
        answers=(7,) * 16,
        rewards=(1.0, 0.0) * 8,
        setup={"kl_coef": 0.05, "kl_where": "loss", "kl_estimator": "k3"},
    )
    noise_N = 0.1 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(0))
    return _later(changed_step(step, ref_logprob=step.tokens["new_logprob"] + noise_N), kl=5e-3)


def example() -> Step:
    """The reference shares the policy's tensors."""
    step = followed()
    return _later(changed_step(step, ref_logprob=step.tokens["new_logprob"]), kl=0.0)


def without_a_gradient() -> Step:
    """All rewards are equal so far: no weight has moved."""
    still: Facts = {"weights": {"before": "a", "after": "a", "next": "a"}}
    numbers = {"grad/norm": 0.0, "lr": 1e-3, "kl_all/k3": 0.0}
    return changed_step(example(), past=[StepNumbers("grpo", number, numbers, still) for number in range(3)])


RULE = Rule(
    code="REF003",
    name="reference-follows-policy",
    kind="E",
    needs=("ref_logprob", "new_logprob", "setup.reference_moves"),
    taints=("reference", "policy"),
    applies=lambda step: has_reference(step) and step.setup.reference_moves is not True,
    judge=judge,
    example=example,
    lookalikes=(followed, without_a_gradient),
)
