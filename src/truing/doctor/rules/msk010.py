"""MSK010: Token gradients follow a loss that nobody means.

What: The trainer's loss is not declared. The token gradients show it: the loss is a common one with the other
sign, or each micro-batch divides by its own number of tokens.

Why it is silent: Both have a loss and a gradient norm of the usual size. With the other sign the policy
unlearns what was paid. With a mean per micro-batch, a token counts for more where its micro-batch has fewer
tokens, so that the result depends on how samples were packed.

How it is measured: In the first optimizer step of a step, before any ratio moves, the gradient of each token
is a factor, times the aggregation's weight of the token, times its advantage less the slope of the KL term.
The rule fits the factor and the weight of the KL for each common aggregation and estimator, and keeps those
that leave rounding alone. It claims a mistake only if no loss without one fits.

Healthy look-alikes: Micro-batches with equal numbers of tokens: the mean over all tokens fits too. A loss
that is divided by a constant: the factor says so. A loss that no known aggregation fits.

Fix: Count the tokens of the whole optimizer step first, over all micro-batches and ranks, and divide each
micro-batch's sum by that number.

References: docs/trace.md, https://unsloth.ai/blog/gradient
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.formulas.loss import loss_text, losses_of
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim a loss that is a mistake, if none that fits may be meant: chance does not fit all tokens."""
    found = losses_of(step) or {}
    wrong = [(loss, fit) for loss, fit in found.items() if loss.mistake or fit.factor < 0]
    if not wrong or len(wrong) < len(found):
        return
    loss, fit = wrong[0]
    lowers = ["it lowers what has a positive advantage"] if fit.factor < 0 else []
    mistakes = [*lowers, *([loss.mistake] if loss.mistake else [])]
    yield Claim(
        Verdict.EVIDENCE,
        f"the loss is the {loss_text(loss, fit)}",
        got=f"{'; '.join(mistakes)}, at all {int(step.tokens['policy_mask'].sum())} tokens",
        expected="a loss whose weights do not depend on how samples are packed"
        if loss.mistake
        else "a loss that raises what has a positive advantage",
        specificity=3,
    )


def _undeclared(step: Step, weight: torch.Tensor) -> Step:
    """Return the step of a trainer that declares nothing, with token gradients of these weights, [N]."""
    setup = replace(step.setup, trainer="other", aggregation=None, plain=None)
    advantage_N = torch.where(step.tokens["policy_mask"], step.tokens["advantage"], 0.0)
    return changed_step(replace(step, setup=setup), token_gradient=(weight * advantage_N).float())


def example() -> Step:
    """Each of two micro-batches divides by its own tokens."""
    step = example_step()
    part_B = torch.arange(8) % 2
    mask_N, part_N = step.tokens["policy_mask"], part_B[step.sample_of_token]
    counts = [int((mask_N & (part_N == part)).sum()) for part in (0, 1)]
    weight_N = 1 / (2 * torch.tensor(counts)[part_N])
    made = _undeclared(step, weight_N)
    return replace(made, passes=replace(made.passes, micro_batch=part_B))


def reversed_loss() -> Step:
    """The loss has the other sign."""
    step = example_step()
    return _undeclared(
        step, torch.full((len(step.sample_of_token),), -1 / int(step.tokens["policy_mask"].sum()))
    )


def meant() -> Step:
    """A sum over tokens, divided by a constant."""
    step = example_step()
    return _undeclared(step, torch.full((len(step.sample_of_token),), 1 / 64))


RULE = Rule(
    code="MSK010",
    name="gradients-of-no-meant-loss",
    kind="M",
    needs=("token_gradient", "policy_mask", "advantage", "new_logprob"),
    taints=("policy",),
    applies=lambda step: (
        has_policy_loss(step) and step.setup.trainer != "truing" and step.setup.aggregation is None
    ),
    judge=judge,
    example=example,
    lookalikes=(meant,),
)
