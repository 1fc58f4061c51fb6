"""MSK009: No token is trained.

What: In step after step, no token is under the policy loss or a supervised one.

Why it is silent: Everything else continues: the policy samples rollouts, graders score them, and rewards
appear. The loss and the gradient are 0, as they also are if no group has a signal, and the weights do not
change.

How it is measured: The rule counts tokens under a loss in each step, and steps in a row without any.
Each token has a recorded reason, and the finding names it. It is proven for a stage that never trained a
token, after ten steps or at its end. If no rollout was good enough, that is a fact of the policy: the
rule suspects it only in a stage that never kept any.

Healthy look-alikes: One step with all rollouts cut, or all groups left out for equal rewards: the next
may differ. Groups of equal reward that are kept: their tokens are trained, with an advantage of 0.

Fix: If turns began with forced tokens, `episode.mask = "action"` leaves them out whole: lower
`episode.force_rate`, or use `mask = "sampled"`. If all rollouts were cut, allow longer answers (in TRL
`max_completion_length`, in a recipe `sampling.max_new_tokens`), or fine-tune on demonstrations first, so
that answers end. If all failed, fix the tool or the environment. If rejection sampling keeps none,
`rft.min_reward` is above every reward.

References: docs/agents.md, docs/control.md
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step, with_optimizer_steps
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin

SUSPECTED, SURE, LEAST = 3, 10, 3
"""Steps in a row for a claim, for proof, and the shortest stage with a claim at its end."""

REASONS = {
    Excluded.NOT_SAMPLED: "the policy chose none",
    Excluded.STRUCTURE: "all are scaffolding of calls",
    Excluded.FORCED_ACTION: "every turn began with forced tokens",
    Excluded.NOT_KEPT: "no rollout was kept",
    Excluded.CUT: "every rollout was cut",
    Excluded.OTHER_CONVERSATION: "all are of conversations that env.train leaves out",
}


def _reason(step: Step) -> Excluded | None:
    """Return the reason that leaves out most sampled tokens."""
    if "excluded" not in step.tokens or "origin" not in step.tokens:
        return None
    drawn_N = step.tokens["origin"] == Origin.SAMPLED
    why = step.tokens["excluded"][drawn_N if drawn_N.any() else slice(None)]
    most_common = Counter(why.tolist()).most_common(1)
    return Excluded(most_common[0][0]) if most_common else None


def judge(step: Step) -> Iterator[Claim]:
    """Claim a stage without training; left-out groups may differ later."""
    idle, count = idle_steps(step), step.steps_before + 1
    if idle < SUSPECTED:
        return
    ends, reason = step.step + 1 == step.setup.steps, _reason(step)
    always = idle == count and (idle >= SURE or (ends and idle >= LEAST))
    recorded = reason is not Excluded.NOT_KEPT
    verdicts = (Verdict.SUSPECT, Verdict.PROVEN) if recorded else (Verdict.FACT, Verdict.SUSPECT)
    why = f": {REASONS[reason]}" if reason is not None and reason in REASONS else ""
    yield Claim(
        verdicts[always],
        f"no token was trained in {idle} steps in a row"
        + (", nor in any before" if idle == count else "")
        + why,
        got="0 tokens under a loss; the weights have not changed",
        expected="tokens under the policy loss",
        specificity=4,
    )


def idle_steps(step: Step) -> int:
    """Return the steps without a trained token in a row, this one included."""
    mask_N = step.tokens["policy_mask"]
    trained_N = mask_N | step.tokens.get("supervised_mask", torch.zeros_like(mask_N))
    before = [each.metrics.get("tokens/trained") for each in reversed(step.latest)]
    return 0 if trained_N.any() else 1 + len(list(takewhile(lambda tokens: tokens == 0, before)))


def idle(count: int, reason: Excluded, steps: int = 40) -> Step:
    """Return a step without a trained token, after others without any."""
    step = example_step(setup={"steps": steps})
    none_N, sampled_N = torch.zeros_like(step.tokens["policy_mask"]), step.tokens["policy_mask"]
    why_N = torch.where(sampled_N, reason, step.tokens["excluded"]).to(torch.uint8)
    before = [past_step(i, tokens_trained=0.0) for i in range(count - 1)]
    blank_N = torch.full_like(step.tokens["advantage"], torch.nan)
    streams = {
        "policy_mask": none_N,
        "excluded": why_N,
        "advantage": blank_N,
        "token_gradient": blank_N.float(),
    }
    moved = {"before": "a", "after": "a", "next": "a"}
    none = dict.fromkeys(range(len(step.samples)), -1)
    still = with_optimizer_steps(
        changed_step(step, past=before, facts={"weights": moved}, metrics={"grad/norm": 0.0}, tokens=streams),
        none,
    )
    return replace(still, step=count - 1)


def example() -> Step:
    """Every turn begins with forced tokens, and the mask leaves out such turns."""
    step = idle(10, Excluded.FORCED_ACTION)
    return changed_step(step, setup={"mask": "action"})


def all_cut_once() -> Step:
    """The second step with all rollouts cut."""
    return changed_step(idle(2, Excluded.CUT), setup={"truncated": "mask"})


RULE = Rule(
    code="MSK009",
    name="no-token-trained",
    kind="E",
    needs=("policy_mask",),
    taints=("policy",),
    judge=judge,
    example=example,
    lookalikes=(all_cut_once,),
)
