"""VAL004: The critic's values differ from a plain forward.

What: The recorded value before a token, or the one after a truncated end, is not what the critic computes of
the state there: it is read at another token, of other weights, or of another sample.

Why it is silent: Values are a baseline, and any number is one: advantages have mean 0 with it or without.
The value after a truncated end, with which advantages bootstrap, is one number among hundreds; read at the
first token it says what the prompt is worth, and every cut rollout learns from that.

How it is measured: In audits, before the first optimizer step, the decoder's own forward computes some rows
again, one at a time without packing, and the critic's head gives the values of its states. One row that was
cut is among them, if the minibatch has one. A ten-thousandth of the largest possible value is allowed, which
is the length of a state times that of the head; float32 leaves a millionth.

Healthy look-alikes: A new critic, whose head is 0: all values are 0 on both sides. Other precisions than
float32, and dropout, are not compared.

Fix: The value before token t is of the state that predicts it; the value after a truncated end is of the
state after the last token.

References: https://arxiv.org/abs/1506.02438, docs/notation.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

ROUNDING = 1e-4
"""Of the largest possible value: float32 leaves 1e-6."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim values beyond rounding."""
    fact = step.facts["critic_values"]
    bound, (sample_id, token) = ROUNDING * fact["scale"], fact["where"]
    if fact["largest"] > bound:
        yield Claim(
            Verdict.PROVEN,
            f"values are up to {fact['largest']:.3g} from a plain forward of the critic",
            got=f"{fact['largest']:.3g} over {with_count(fact['tokens'], 'token')}",
            expected=f"within {bound:.2g}",
            row=step.row_of(sample_id),
            start=token,
            end=token + 1,
            specificity=2.6,
        )
    if fact["bootstrap"] > bound:
        yield Claim(
            Verdict.PROVEN,
            f"the value after a truncated end is up to {fact['bootstrap']:.3g} from a plain forward of the"
            " critic",
            got=f"{fact['bootstrap']:.3g} over {with_count(fact['cut'], 'end')}",
            expected=f"within {bound:.2g}: the value of the state after the last token",
            specificity=2.6,
        )


def _compared(**fact: object) -> Step:
    same = {"tokens": 40, "largest": 2e-7, "scale": 4.0, "where": ("s0", 5), "cut": 1, "bootstrap": 1e-7}
    return changed_step(valued(), facts={"critic_values": same | fact})


def example() -> Step:
    """The value after the end is read at the first token."""
    return _compared(bootstrap=0.3)


def of_next_state() -> Step:
    """The value before a token has seen the token."""
    return _compared(largest=0.2)


def rounded() -> Step:
    """The same values, with the rounding of another batch."""
    return _compared()


RULE = Rule(
    code="VAL004",
    name="values-not-plain",
    kind="M",
    needs=("facts.critic_values",),
    taints=("critic", "policy"),
    applies=has_critic,
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
