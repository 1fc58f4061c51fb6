"""ADV010: REINFORCE's advantages are not what its returns come to.

What: Returns made again from the recorded rewards, or advantages made again from these, are others: another
discount, no baseline or another one, a penalty or the cost of the KL that is left out.

Why it is silent: Without its baseline REINFORCE still learns, only from far more attempts. With another
discount it reinforces the last tokens alone. No scalar is wrong.

How it is measured: Along the tokens that the policy chose, R = r + γ R′ in Python's floats, with the reward
at the last of them, what a turn earned at the turn's last, and what a KL in the reward costs at each. From
it the mean reward of all other attempts is taken, where that is declared, and the whole is brought to mean
0 and deviation 1 over the trained tokens, where that is.

Healthy look-alikes: A step of one attempt, whose baseline is its own reward. Tokens of tools and templates,
which take no time. Declared penalties for cut or long attempts.

Fix: The baseline is over the step's attempts, each once, and without the attempt itself; the discount is
per chosen token.

References: https://link.springer.com/article/10.1007/BF00992696, https://arxiv.org/abs/2402.14740
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.oracle.advantages import expected_reinforce_advantages, trajectories_of
from truing.doctor.rule import Rule
from truing.doctor.rules.adv006 import at_first, differing
from truing.doctor.token_places import Places
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """What differs from the second computation, and the mistake that it looks like."""

    returns: Places
    advantages: Places
    got: float  # at the first place
    expected: float
    reading: str


def measure(step: Step) -> Measured:
    """Recompute, and compare every token."""
    chains = trajectories_of(step)
    expected = expected_reinforce_advantages(step, chains)
    returns, advantages = differing(step, expected)
    wrong = bool(returns or advantages)
    return Measured(
        returns,
        advantages,
        *at_first(step, expected, returns, advantages),
        _reading(step) if wrong else "",
    )


def _reading(step: Step) -> str:
    """The usual mistake that gives what is on record, in words."""
    declared = step.setup
    mistakes = {
        "the baseline is left out": changed_step(step, setup={"baseline": "none"}),
        "γ is 1": changed_step(step, setup={"gamma": 1.0}),
        "they are not normalised": changed_step(step, setup={"whiten": False}),
        "they are normalised, and it is not declared": changed_step(step, setup={"whiten": True}),
        "the KL in the reward costs nothing": changed_step(step, setup={"kl_where": "loss"}),
        "penalties are left out": changed_step(step, setup={"truncated": "keep", "overlong_tokens": 0}),
    }
    for told, tried in mistakes.items():
        if tried.setup != declared and not any(
            differing(step, expected_reinforce_advantages(tried, trajectories_of(tried)))
        ):
            return told
    return ""


def judge(found: Measured) -> Iterator[Claim]:
    """The sums have one value."""
    wrong = found.returns or found.advantages
    if wrong:
        name = "returns" if found.returns else "advantages"
        yield Claim(
            Verdict.PROVEN,
            f"{wrong.tokens} of {wrong.compared} {name} are not what the rewards come to"
            + (f": {found.reading}" if found.reading else ""),
            got=f"{found.got:.6g} at row {wrong.row}, token {wrong.start}",
            expected=f"{found.expected:.6g}",
            **wrong.claim_fields,
            specificity=2,
        )


DECLARED = {"algo": "reinforce", "advantage": "return", "gamma": 0.9, "baseline": "step", "whiten": False}


def returned(**changes: object) -> Step:
    """A step of REINFORCE; made by what is declared, or by ``changes`` of it."""
    step = changed_step(example_step(setup=DECLARED), setup=changes)
    returns_N, advantage_N = expected_reinforce_advantages(step, trajectories_of(step))
    recorded = with_token_gradients(
        changed_step(step, returns=returns_N.float(), advantage=advantage_N.float())
    )
    return changed_step(recorded, setup=DECLARED)


def example() -> Step:
    """The baseline is left out."""
    return returned(baseline="none")


def penalised() -> Step:
    """The last attempt was cut, and pays for it."""
    step = changed_step(
        example_step(setup=DECLARED | {"truncated": "penalize", "truncated_penalty": 0.5}),
        rows={7: {"truncated": True}},
    )
    returns_N, advantage_N = expected_reinforce_advantages(step, trajectories_of(step))
    return with_token_gradients(changed_step(step, returns=returns_N.float(), advantage=advantage_N.float()))


RULE = Rule(
    code="ADV010",
    name="returns-recomputed",
    kind="M",
    needs=("advantage", "policy_mask", "row.reward", "setup.gamma", "setup.advantage", "setup.baseline"),
    taints=("policy",),
    applies=lambda step: (
        step.setup.algo in ("reinforce", None)
        and step.setup.advantage in ("return", None)
        and not step.numbers.get("gate/held_back")  # rows of updates that were not made are not on record
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(returned, penalised),
)
