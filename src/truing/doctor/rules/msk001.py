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

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim even one token of another origin under a mask."""
    origin_N, tokens = step.tokens["origin"], step.tokens
    policy_N = tokens["policy_mask"] & (origin_N != Origin.SAMPLED)
    supervised_N = tokens["supervised_mask"] & (origin_N != Origin.DEMO)
    origins = ", ".join(Origin(each).name for each in origin_N[policy_N | supervised_N].unique().tolist())
    for loss, wrong_N, only in (("policy", policy_N, "SAMPLED"), ("supervised", supervised_N, "DEMO")):
        if where := places(step, wrong_N):
            yield Claim(
                Verdict.PROVEN,
                f"the {loss} loss trains {with_count(where.tokens, 'token')} of origin {origins}",
                got=str(where),
                expected=f"{only} tokens alone",
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
    judge=judge,
    example=example,
)
