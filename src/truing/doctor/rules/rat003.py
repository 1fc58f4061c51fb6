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

from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict

CERTAIN = 1e-3
"""Nats: the only possible token has a log-probability of 0, for any weights."""

TOKENS = 64

VISIBLE = 1e-6
"""Learning rate: AdamW moves each weight by about that much, and float32 shows it."""


def _frozen_before(step: Step) -> bool:
    """Return whether the step before, of the same stage, had a gradient and ratios of 1 alone."""
    if not step.past_of_stage or not step.past_of_stage[-1].metrics.get("grad/norm"):
        return False
    numbers = step.past_of_stage[-1].metrics
    return numbers.get("ratio/min") == numbers.get("ratio/max") == 1


def judge(step: Step) -> Iterator[Claim]:
    """Claim that no token moved by one bit, although weights did."""
    compared_N, must_move = _compared(step)
    new_N, old_N = step.tokens["new_logprob"], step.tokens["old_logprob"]
    if compared_N.sum() < TOKENS or not must_move or not (new_N == old_N)[compared_N].all():
        return
    weights, gradient = step.facts.get("weights"), step.metrics.get("grad/norm", 0.0)
    moved, rate = weights and weights["before"] != weights["after"], step.metrics.get("lr", 0.0)
    if rate > 0 and moved is not False and (moved or gradient > 0):
        sure = moved and gradient > 0 and rate >= VISIBLE and _frozen_before(step)
        where = places(step, compared_N)
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"at optimizer step {int(step.optimizer_step_of_sample.max()) + 1} of the batch all"
            f" {where.tokens} ratios are exactly 1, although the weights have moved since the first",
            got=f"new = old, bit for bit; gradient norm {gradient:.3g}, learning rate {rate:.3g}",
            expected="ratios that differ from 1 from the second optimizer step on",
            **where.claim_fields,
            specificity=2,
        )


def _compared(step: Step) -> tuple[Tensor, bool]:
    """Return tokens of the last optimizer step that differ once weights move, [N] bool, and if they must.

    They must if an optimizer step before had a gradient.
    """
    new_N, old_N = step.tokens["new_logprob"], step.tokens["old_logprob"]
    inner_N = step.optimizer_step_of_sample[step.sample_of_token]
    last = int(inner_N.max())
    uncertain_N = new_N.abs() > CERTAIN  # false for NaN
    signal_N = step.tokens["policy_mask"] & (step.tokens["advantage"].nan_to_num() != 0) & uncertain_N
    # a single minibatch was the first optimizer step's too; of several, one before must have a gradient
    alone = bool((step.passes.optimizer_step == last).all())
    before = bool((signal_N & (inner_N >= 0) & (inner_N < last)).any())
    return signal_N & (inner_N == last) & ~old_N.isnan() & (inner_N > 0), alone or before


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
    judge=judge,
    example=example,
    lookalikes=(second, still, no_signal_before),
)
