"""MSK001: The loss trains tokens that the policy did not choose.

What: The mask of the policy loss is on at tokens of the prompt, of the template, of a tool's answer, or at
forced tokens. Or the mask of the supervised loss is on at tokens outside demonstrations.

Why it is silent: The loss falls all the same, since prompts and tool answers are easy to learn. The step
reinforces text that the environment writes anyway, and the policy forgets how to act.

How it is measured: Each token carries its origin. The mask of the policy loss must lie within SAMPLED, that
of the supervised loss within DEMO: id for id, without any threshold.

Healthy look-alikes: A mask that is smaller than the sampled tokens, under a declared mask policy (MSK002
compares it). A stop token at the end of a turn: the policy chose it.

Fix: Derive masks from token origins, when samples are joined, and never from ids, lengths or padding. Inspect
the sample with `truing tokens`.

References: https://github.com/huggingface/trl/issues/6357
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count


class Measured(NamedTuple):
    """Tokens under each loss with another origin, and that origin."""

    policy: Places
    supervised: Places
    origins: str


def measure(step: Step) -> Measured:
    """Return the places where a mask is on at a token of another origin."""
    origin_N, tokens = step.tokens["origin"], step.tokens
    policy_N = tokens["policy_mask"] & (origin_N != Origin.SAMPLED)
    supervised_N = tokens["supervised_mask"] & (origin_N != Origin.DEMO)
    origins = origin_N[policy_N | supervised_N].unique().tolist()
    names = ", ".join(Origin(each).name for each in origins)
    return Measured(places(step, policy_N), places(step, supervised_N), names)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim even one token."""
    for loss, where in (("policy", measured.policy), ("supervised", measured.supervised)):
        if where:
            yield Claim(
                Verdict.PROVEN,
                f"the {loss} loss trains {with_count(where.tokens, 'token')} of origin {measured.origins}",
                got=str(where),
                expected="SAMPLED tokens alone" if loss == "policy" else "DEMO tokens alone",
                **where.claim_fields,
                specificity=3,
            )


def example() -> Step:
    """The mask of one sample is two tokens too early."""
    healthy = example_step()
    mask = healthy.tokens["policy_mask"].clone()
    mask[1:3] = True
    return changed_step(healthy, policy_mask=mask)


RULE = Rule(
    code="MSK001",
    name="loss-on-unsampled",
    kind="E",
    needs=("origin", "policy_mask", "supervised_mask"),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
)
