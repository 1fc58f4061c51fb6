"""RAT003: Ratios are exactly 1 after weights have moved.

What: A batch has several optimizer steps, and at the last of them new and old log-probabilities are still
equal, bit for bit, at all tokens. The trainer recomputes the old ones before each optimizer step, or they are
the new ones themselves.

Why it is silent: A ratio of 1 is right at the first optimizer step of a batch, so its plot raises no alarm.
The clip never acts: each further epoch is a plain policy gradient on off-policy data, without any bound on
the distance.

How it is measured: The rule compares samples of a second or later optimizer step bit for bit, at uncertain
tokens with an advantage. An earlier optimizer step of the step must have had tokens with a gradient, and the
weights must have moved, by their digest, at a rate that shows in float32. It is proven if the step before
showed the same: a scaler may have skipped one optimizer step.

Healthy look-alikes: Ratios of 1 at the first optimizer step, which are required. Tokens of probability 1,
before and after. A learning rate of 1e-9, or of 0 in warm-up. A first minibatch without any signal. A step
whose first optimizer step a gradient scaler skipped.

Fix: Compute old log-probabilities once per batch, before its first optimizer step, or use the sampler's, and
keep them in a tensor of their own. A ratio of 1 at the first optimizer step needs no fix, and above all no
noise.

References: https://github.com/huggingface/trl/issues/3452, https://arxiv.org/abs/1707.06347,
docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

CERTAIN = 1e-3
"""Nats: the only possible token has a log-probability of 0, for any weights."""

TOKENS = 64

VISIBLE = 1e-6
"""Learning rate: AdamW moves each weight by about that much, and float32 shows it."""


class Measured(NamedTuple):
    """The later optimizer steps' tokens with a ratio of exactly 1, and the expected movement."""

    compared: Places
    equal: int
    inner_step: int
    earlier: bool  # whether an optimizer step before had token gradients
    moved: bool | None  # by the digest of the weights
    gradient: float
    rate: float
    before: bool  # whether the ratios of the step before were all 1


def measure(step: Step) -> Measured:
    """Count tokens, and those whose ratio is 1, at the last optimizer step of the step."""
    new_N, old_N = step.tokens["new_logprob"], step.tokens["old_logprob"]
    inner_N = step.optimizer_step_of_sample[step.sample_of_token]
    last = int(inner_N.max())
    uncertain_N = new_N.abs() > CERTAIN  # false for NaN
    signal_N = step.tokens["policy_mask"] & (step.tokens["advantage"].nan_to_num() != 0) & uncertain_N
    compared_N = signal_N & (inner_N == last) & ~old_N.isnan() & (inner_N > 0)
    # a single minibatch was the first optimizer step's too; of several, one before must have a gradient
    alone = bool((step.passes.optimizer_step == last).all())
    weights = step.facts.get("weights")
    return Measured(
        places(step, compared_N),
        int((new_N == old_N)[compared_N].sum()),
        last,
        alone or bool((signal_N & (inner_N >= 0) & (inner_N < last)).any()),
        None if weights is None else weights["before"] != weights["after"],
        step.metrics.get("grad/norm", 0.0),
        step.metrics.get("lr", 0.0),
        _frozen_before(step),
    )


def _frozen_before(step: Step) -> bool:
    """Return whether the step before, of the same stage, had a gradient and ratios of 1 alone."""
    if not step.past_of_stage or not step.past_of_stage[-1].metrics.get("grad/norm"):
        return False
    numbers = step.past_of_stage[-1].metrics
    return numbers.get("ratio/min") == numbers.get("ratio/max") == 1


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim that no token moved by one bit, although weights did."""
    frozen = (
        measured.compared.tokens >= TOKENS and measured.equal == measured.compared.tokens and measured.earlier
    )
    if (
        frozen
        and measured.rate > 0
        and (measured.moved or measured.gradient > 0)
        and measured.moved is not False
    ):
        sure = measured.moved and measured.gradient > 0 and measured.rate >= VISIBLE and measured.before
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"at optimizer step {measured.inner_step + 1} of the batch all {measured.equal} ratios are"
            " exactly 1,"
            " although the weights have moved since the first",
            got=f"new = old, bit for bit; gradient norm {measured.gradient:.3g}, learning rate"
            f" {measured.rate:.3g}",
            expected="ratios that differ from 1 from the second optimizer step on",
            **measured.compared.claim_fields,
            specificity=2,
        )


def second() -> Step:
    """The batch has two optimizer steps, and the ratios show it."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8, setup={"inner_steps": 2, "trainer": "trl"})
    later = dict.fromkeys(range(16), 1)
    new_N = step.tokens["new_logprob"] * 1.01
    return with_token_gradients(with_optimizer_steps(changed_step(step, new_logprob=new_N), later))


def example() -> Step:
    """The trainer recomputes old log-probabilities before each optimizer step."""
    step = second()
    before = past_step(0, grad_norm=1.0, ratio_min=1.0, ratio_max=1.0)
    return with_token_gradients(changed_step(step, old_logprob=step.tokens["new_logprob"], past=[before]))


def still() -> Step:
    """A learning rate of 0: no weight moved, so no ratio differs."""
    weights = {"before": "a", "after": "a", "next": "a"}
    return changed_step(example(), metrics={"lr": 0.0}, facts={"weights": weights})


def no_signal_before() -> Step:
    """Two minibatches, and all groups of the first one have equal rewards."""
    rewards = (1.0,) * 8 + (1.0, 0.0) * 4
    step = example_step(answers=(7,) * 16, rewards=rewards, setup={"inner_steps": 2, "trainer": "trl"})
    halves = {index: index // 8 for index in range(16)}
    return with_token_gradients(with_optimizer_steps(changed_step(step, past=example().past), halves))


RULE = Rule(
    code="RAT003",
    name="ratio-frozen",
    kind="E",
    needs=("new_logprob", "old_logprob", "advantage", "policy_mask"),
    taints=("policy",),
    applies=lambda step: (
        bool((step.optimizer_step_of_sample > 0).any())
        or (not step.samples and has_policy_loss(step) and step.setup.inner_steps != 1)
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(second, still, no_signal_before),
)
