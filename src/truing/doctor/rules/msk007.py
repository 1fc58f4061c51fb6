"""MSK007: The supervised loss differs from a mean cross-entropy.

What: In supervised fine-tuning, or rejection sampling, the gradient of the loss with respect to each
token's log-probability is not the same for all demonstrated tokens and 0 everywhere else. Or the recorded
loss is not their mean cross-entropy: something else is in it.

Why it is silent: The loss falls with any mask and any weight. A mask that is one token off, a mean over
padded sequences, or a sum over micro-batches of unequal size still learns something, but not the declared
objective.

How it is measured: The cross-entropy is a mean over demonstrated tokens. Its gradient with respect to each
of their log-probabilities is −1 ÷ their number, over the whole minibatch, and 0 for all others. The rule
compares the recorded gradient with that, token by token. The loss of a step is computed again from the
recorded log-probabilities: a bonus for entropy, or a penalty, changes it and no token's own gradient.

Healthy look-alikes: Answers below the threshold of rejection sampling are in the batch, and have no
gradient. Long demonstrations weigh more than short ones: the mean is over tokens. The learning rate is no
part of it.

Fix: Divide by the demonstrated tokens of the whole minibatch, counted before it is split. Shift logits and
labels by one, once, in one place.

References: https://huggingface.co/blog/gradient_accumulation, docs/notation.md
"""

import math
from collections.abc import Iterator

import torch

from truing.doctor.evidence import Setup, Step, changed_step
from truing.doctor.example_steps import GRPO_SETUP, example_step
from truing.doctor.oracle.token_gradients import expected_token_gradients
from truing.doctor.rule import Rule, has_gradient
from truing.doctor.rules import msk003
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin

ROUNDING = 1e-4
"""Of a loss, and absolute: float32 leaves 1e-6."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim any gradient beyond rounding, or a loss of the last optimizer step with something else in it."""
    yield from msk003.judge(step)
    *_, (_, last) = step.at_each_optimizer_step()
    logprob_N = last.stream("new_logprob")[last.tokens["supervised_mask"]].double()
    loss, expected = step.metrics.get("loss/supervised", math.nan), -float(logprob_N.mean())
    known = step.setup.trainer == "truing" and math.isfinite(loss) and math.isfinite(expected)
    if known and not math.isclose(loss, expected, rel_tol=ROUNDING, abs_tol=ROUNDING):
        yield Claim(
            Verdict.PROVEN,
            "the recorded supervised loss is not the cross-entropy of the recorded log-probabilities",
            got=f"{loss:.6g} is recorded",
            expected=f"{expected:.6g}, minus the mean log-probability of its tokens",
            specificity=2.4,
        )


SFT = Setup(
    algo="sft",
    mask="sampled",
    inner_steps=1,
    reference_moves=False,
    dropout=False,
    stop_ids=GRPO_SETUP.stop_ids,
    bos_id=GRPO_SETUP.bos_id,
    max_new_tokens=GRPO_SETUP.max_new_tokens,
    learning_rate=GRPO_SETUP.learning_rate,
)


def demonstrated_step() -> Step:
    """Return a healthy step of supervised fine-tuning: the answers of ``example_step`` as demonstrations."""
    drawn = example_step()
    demo_N = drawn.tokens["policy_mask"]
    rows = {
        index: {
            "group_id": f"g{index}",
            "turns": (TurnSpan(row.prompt_length, drawn.lengths[index], FinishReason.DEMO, 0, ""),),
            "reward": float("nan"),
            "reward_parts": {},
        }
        for index, row in enumerate(drawn.samples)
    }
    step = changed_step(
        drawn,
        samples=rows,
        without=("sampler_logprob", "old_logprob", "advantage", "token_gradient"),
        setup={name: getattr(SFT, name) for name in SFT.__dataclass_fields__},
        origin=torch.where(demo_N, Origin.DEMO, drawn.tokens["origin"]).to(torch.uint8),
        excluded=torch.full_like(drawn.tokens["excluded"], Excluded.NOT_SAMPLED),
        policy_mask=torch.zeros_like(demo_N),
        kl_mask=torch.zeros_like(demo_N),
        supervised_mask=demo_N,
    )
    return changed_step(
        step, token_gradient=expected_token_gradients(step).float().masked_fill(~demo_N, torch.nan)
    )


def example() -> Step:
    """Each sequence counts the same, although the recipe declares the mean over tokens."""
    healthy = demonstrated_step()
    demo_N = healthy.tokens["supervised_mask"]
    own_N = torch.bincount(healthy.sample_of_token[demo_N]).double()[healthy.sample_of_token]
    gradient_N = (1 / (own_N * len(healthy.samples))).masked_fill(~demo_N, torch.nan)
    return changed_step(healthy, token_gradient=gradient_N.float())


def with_entropy() -> Step:
    """A bonus for entropy is in the loss, which changes no token's own gradient."""
    return changed_step(demonstrated_step(), metrics={"loss/supervised": 0.2}, setup={"trainer": "truing"})


def some_too_bad() -> Step:
    """Rejection sampling: half of the answers are in the batch, and under no loss."""
    step = demonstrated_step()
    bad_N = step.sample_of_token >= 4
    origin_N = torch.where(
        bad_N & step.tokens["supervised_mask"], Origin.SAMPLED, step.tokens["origin"].long()
    )
    left_N = origin_N == Origin.SAMPLED
    rows = {
        index: {
            "reward": float(index < 4),
            "turns": (TurnSpan(row.prompt_length, step.lengths[index], FinishReason.STOP, 0, "a"),),
        }
        for index, row in enumerate(step.samples)
    }
    step = changed_step(
        step,
        samples=rows,
        setup={"algo": "rft"},
        origin=origin_N.to(torch.uint8),
        excluded=torch.where(left_N, Excluded.NOT_KEPT, Excluded.NOT_SAMPLED).to(torch.uint8),
        supervised_mask=step.tokens["supervised_mask"] & ~bad_N,
    )
    return changed_step(
        step,
        token_gradient=expected_token_gradients(step)
        .float()
        .masked_fill(~step.tokens["supervised_mask"], torch.nan),
    )


RULE = Rule(
    code="MSK007",
    name="supervised-gradient-not-as-declared",
    kind="M",
    needs=("token_gradient", "supervised_mask"),
    taints=("sft",),
    applies=lambda step: (
        step.setup.algo in ("sft", "rft")
        and step.setup.aggregation in ("token_mean", "rank_token_mean", None)
        and has_gradient(step)
    ),
    judge=judge,
    example=example,
    lookalikes=(demonstrated_step, some_too_bad),
)
