"""ADV006: Advantages and returns are not what rewards and values come to.

What: Generalised advantage estimation, made again from the recorded values and rewards, has other results:
another discount or λ, a value from beyond the end, a reward at the wrong token, or advantages that were
normalised over something else.

Why it is silent: Any advantage that has about the right size will train something, and a critic learns
whatever returns it is given. Where a value is read one place too late, or an episode that was cut counts as
one that ended, only the direction of small differences is wrong.

How it is measured: Along the tokens that the policy chose, all rows of a rollout one after the other, δ = r
+ γ V′ − V and A = δ + γ λ A′ are computed in Python's floats. The reward is at the last of them, less
declared penalties, what a turn earned at the turn's last, and what a KL in the reward costs at each. A cut
attempt is worth what the critic said of its end, or nothing: as it is declared, and where it is not either.
Where it is declared, advantages are then brought to mean 0 and deviation 1 over all trained tokens. What
differs is tried against the usual mistakes.

Healthy look-alikes: Tokens of tools, templates and forced prefixes have no value and take no time. Tokens
that a mask excludes stay in the chain. A step in which one token is trained is not normalised.

Fix: Make returns from advantages before these are normalised; read V of the next choice, and 0, or the
critic's own word, after the last one; normalise once, over the batch.

References: https://arxiv.org/abs/1506.02438, https://arxiv.org/abs/2006.05990,
https://arxiv.org/abs/1707.06347
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.oracle.advantages import Trajectory, expected_gae, trajectories_of
from truing.doctor.rule import Rule
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of the largest number: float32 leaves 1e-6."""


class Measured(NamedTuple):
    """What differs from the second computation, and the mistake that it looks like."""

    returns: Places
    advantages: Places
    got: float  # at the first place
    expected: float
    cut: int  # rollouts that were cut, with a value of their end
    bootstrapped: bool  # whether those are worth that value
    reading: str


def measure(step: Step) -> Measured:
    """The variant that fits best, of those that are legal; where none fits, the mistake that does."""
    chains = trajectories_of(step)
    cut = sum(not math.isnan(chain.bootstrap_value) for chain in chains)
    whitenings = [step.setup.whiten] if step.setup.whiten is not None else [True, False]
    ends = [step.setup.bootstraps] if step.setup.bootstraps is not None else [True, False]
    tried = []
    for bootstrapped in ends if cut else [False]:
        for whiten in whitenings:
            expected = expected_gae(step, chains, bootstrapped=bootstrapped, whiten=whiten)
            tried.append((bootstrapped, whiten, expected, *differing(step, expected)))
            if not (tried[-1][3] or tried[-1][4]):
                break
    bootstrapped, whiten, expected, returns, advantages = min(
        tried, key=lambda each: each[3].tokens + each[4].tokens
    )
    wrong = bool(returns or advantages)
    return Measured(
        returns,
        advantages,
        *at_first(step, expected, returns, advantages),
        cut,
        bootstrapped,
        _reading(step, chains, bootstrapped, whiten) if wrong else "",
    )


def differing(step: Step, expected: tuple[Tensor, Tensor]) -> tuple[Places, Places]:
    """Where recorded returns, and advantages of trained tokens, are others."""
    nothing_N = torch.zeros(len(step.row_of_token), dtype=torch.bool)
    found = []
    for name, expected_N in zip(("returns", "advantage"), expected, strict=True):
        got_N = step.tokens[name].double() if name in step.tokens else expected_N
        compared_N = ~expected_N.isnan() & (step.tokens["policy_mask"] if name == "advantage" else ~nothing_N)
        scale = float(expected_N[compared_N].abs().max()) if compared_N.any() else 0.0
        wrong_N = compared_N & ~((got_N - expected_N).abs() <= ROUNDING * max(scale, ROUNDING))
        found.append(places(step, wrong_N, int(compared_N.sum())))
    return found[0], found[1]


def at_first(
    step: Step, expected: tuple[Tensor, Tensor], returns: Places, advantages: Places
) -> tuple[float, float]:
    """What stands at the first place that differs, and what should; 0 and 0 where none does."""
    returns_N, advantage_N = expected
    name, where, right_N = (
        ("returns", returns, returns_N) if returns else ("advantage", advantages, advantage_N)
    )
    if not where:
        return 0.0, 0.0
    token = step.starts[where.row] + where.start
    return float(step.tokens[name][token]), float(right_N[token])


def _reading(step: Step, chains: Sequence[Trajectory], bootstrapped: bool, whiten: bool) -> str:
    """The usual mistake that gives what is on record, in words."""
    gamma, lam = step.setup.gamma, step.setup.lam
    mistakes = {
        "γ and λ are exchanged": {"gamma": lam, "lam": gamma},
        "λ is 1": {"lam": 1.0},
        "λ is 0": {"lam": 0.0},
        "γ is 1": {"gamma": 1.0},
        "advantages are not normalised": {"whiten": False},
        "advantages are normalised, and it is not declared": {"whiten": True},
    }
    for told, changes in mistakes.items():
        tried = expected_gae(step, chains, **{"bootstrapped": bootstrapped, "whiten": whiten} | changes)
        if not any(differing(step, tried)):
            return told
    shifted = [chain._replace(values=[*chain.values[1:], chain.values[-1]]) for chain in chains]
    if not any(differing(step, expected_gae(step, shifted, bootstrapped=bootstrapped, whiten=whiten))):
        return "each value is read one choice too late"
    free = changed_step(step, setup={"kl_where": "loss", "truncated": "keep", "overlong_tokens": 0})
    if not any(
        differing(step, expected_gae(free, trajectories_of(free), bootstrapped=bootstrapped, whiten=whiten))
    ):
        return "a KL or a penalty that is declared to be in the reward is not"
    return ""


def judge(found: Measured) -> Iterator[Claim]:
    """The recursion has one result, up to what a cut attempt is worth."""
    wrong = found.returns or found.advantages
    if wrong:
        name = "returns" if found.returns else "advantages"
        cut = f"; {found.cut} rollouts were cut, and their end is worth" if found.cut else ""
        worth = (" what the critic says" if found.bootstrapped else " nothing") if found.cut else ""
        yield Claim(
            Verdict.PROVEN,
            f"{wrong.tokens} of {wrong.compared} {name} are not what rewards and values come to"
            + (f": {found.reading}" if found.reading else ""),
            got=f"{found.got:.6g} at row {wrong.row}, token {wrong.start}{cut}{worth}",
            expected=f"{found.expected:.6g}",
            **wrong.claim_fields,
            specificity=2,
        )


def valued(**changes: float) -> Step:
    """A step of PPO: values, returns and advantages by the recursion, with γ and λ as given."""
    step = example_step(setup={"algo": "ppo", "advantage": "gae", "gamma": 0.99, "lam": 0.9, "whiten": True})
    value_N = (0.5 + 0.1 * torch.linspace(0, 9, len(step.row_of_token)).sin()).masked_fill(
        ~step.tokens["policy_mask"], torch.nan
    )
    step = changed_step(step, value=value_N)
    returns_N, advantage_N = expected_gae(
        step, trajectories_of(step), bootstrapped=False, whiten=True, **changes
    )
    return with_token_gradients(changed_step(step, returns=returns_N.float(), advantage=advantage_N.float()))


def example() -> Step:
    """γ and λ are handed over in the wrong order."""
    return valued(gamma=0.9, lam=0.99)


def with_a_cut() -> Step:
    """The last attempt was cut, and is worth what the critic expects from there."""
    step = valued()
    last = len(step.rows) - 1
    step = changed_step(step, rows={last: {"truncated": True, "bootstrap_value": 0.4}})
    returns_N, advantage_N = expected_gae(step, trajectories_of(step), bootstrapped=True, whiten=True)
    return with_token_gradients(changed_step(step, returns=returns_N.float(), advantage=advantage_N.float()))


RULE = Rule(
    code="ADV006",
    name="gae-recomputed",
    kind="M",
    needs=(
        "value",
        "advantage",
        "policy_mask",
        "row.reward",
        "setup.gamma",
        "setup.lam",
        "setup.advantage",
    ),
    taints=("policy", "critic"),
    applies=lambda step: (
        step.setup.algo in ("ppo", None)
        and step.setup.advantage in ("gae", None)
        and not step.numbers.get("gate/held_back")  # rows of updates that were not made are not on record
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(valued, with_a_cut),
)
