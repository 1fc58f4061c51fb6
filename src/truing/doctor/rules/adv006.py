"""ADV006: Advantages and returns differ from a recomputation from rewards and values.

What: Generalised advantage estimation, recomputed from the recorded values and rewards, gives other
results. The trainer used another discount or λ, a value from beyond the end, a reward at the wrong token,
or another normalisation.

Why it is silent: Any advantage of about the right size trains something, and a critic learns any returns.
If the code reads a value one token too late, or treats a cut episode as one that ended, only the direction
of small differences is wrong.

How it is measured: Along the tokens that the policy chose, all samples of a rollout in order, Python's floats
give δ = r + γ V′ − V and A = δ + γ λ A′. The reward is at the last of them, less declared penalties. The
reward of a turn is at the turn's last token, and the cost of a KL in the reward is at each. The end of a
cut rollout has the critic's value, or 0, as declared; if neither is declared, either is accepted. If
declared, advantages are then normalised to mean 0 and deviation 1 over all trained tokens. The rule tries
the usual mistakes on any difference.

Healthy look-alikes: Tokens of tools, templates and forced prefixes have no value and take no time. Tokens
that a mask excludes stay in the chain. A step with one trained token is not normalised.

Fix: Compute returns from the advantages before normalising them. Read V of the next choice, and 0, or the
critic's value, after the last one. Normalise once, over the batch.

References: https://arxiv.org/abs/1506.02438, https://arxiv.org/abs/2006.05990,
https://arxiv.org/abs/1707.06347
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.oracle.advantages import Trajectory, expected_gae, trajectories_of
from truing.doctor.rule import Rule
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of the largest number: float32 leaves 1e-6."""


class Measured(NamedTuple):
    """Differences from the second computation, and the mistake that explains them."""

    returns: Places
    advantages: Places
    got: float  # at the first place
    expected: float
    cut: int  # cut rollouts with a value at their end
    bootstrapped: bool  # whether their end counts with that value
    reading: str


def measure(step: Step) -> Measured:
    """Compare with the legal variant that fits best; if none fits, name the mistake that does."""
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
    """Return the places where recorded returns, and advantages of trained tokens, differ."""
    nothing_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    both = []
    for name, expected_N in zip(("returns", "advantage"), expected, strict=True):
        got_N = step.tokens[name].double() if name in step.tokens else expected_N
        compared_N = ~expected_N.isnan() & (step.tokens["policy_mask"] if name == "advantage" else ~nothing_N)
        scale = float(expected_N[compared_N].abs().max()) if compared_N.any() else 0.0
        wrong_N = compared_N & ~((got_N - expected_N).abs() <= ROUNDING * max(scale, ROUNDING))
        both.append(places(step, wrong_N, int(compared_N.sum())))
    return both[0], both[1]


def at_first(
    step: Step, expected: tuple[Tensor, Tensor], returns: Places, advantages: Places
) -> tuple[float, float]:
    """Return the recorded and the expected value at the first difference; 0 and 0 without one."""
    returns_N, advantage_N = expected
    name, where, right_N = (
        ("returns", returns, returns_N) if returns else ("advantage", advantages, advantage_N)
    )
    if not where:
        return 0.0, 0.0
    token = step.starts[where.row] + where.start
    return float(step.tokens[name][token]), float(right_N[token])


def _reading(step: Step, chains: Sequence[Trajectory], bootstrapped: bool, whiten: bool) -> str:
    """Return the usual mistake that gives the recorded numbers, as text."""
    gamma, lam = step.setup.gamma, step.setup.lam
    mistakes = {
        "γ and λ are exchanged": {"gamma": lam, "lam": gamma},
        "λ is 1": {"lam": 1.0},
        "λ is 0": {"lam": 0.0},
        "γ is 1": {"gamma": 1.0},
        "advantages are not normalised": {"whiten": False},
        "advantages are normalised, and no normalisation is declared": {"whiten": True},
    }
    for mistake, changes in mistakes.items():
        tried = expected_gae(step, chains, **{"bootstrapped": bootstrapped, "whiten": whiten} | changes)
        if not any(differing(step, tried)):
            return mistake
    shifted = [chain._replace(values=[*chain.values[1:], chain.values[-1]]) for chain in chains]
    if not any(differing(step, expected_gae(step, shifted, bootstrapped=bootstrapped, whiten=whiten))):
        return "each value is read one token too late"
    free = changed_step(step, setup={"kl_where": "loss", "truncated": "keep", "overlong_tokens": 0})
    if not any(
        differing(step, expected_gae(free, trajectories_of(free), bootstrapped=bootstrapped, whiten=whiten))
    ):
        return "a KL or a penalty declared in the reward is missing"
    return ""


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any difference: the recursion has one result, up to the value of a cut end."""
    wrong = measured.returns or measured.advantages
    if wrong:
        name = "returns" if measured.returns else "advantages"
        cut = f"; {measured.cut} rollouts were cut, and their end counts with" if measured.cut else ""
        worth = (" the critic's value" if measured.bootstrapped else " nothing") if measured.cut else ""
        yield Claim(
            Verdict.PROVEN,
            f"{wrong.tokens} of {wrong.compared} {name} differ from a recomputation from rewards and values"
            + (f": {measured.reading}" if measured.reading else ""),
            got=f"{measured.got:.6g} at sample {wrong.row}, token {wrong.start}{cut}{worth}",
            expected=f"{measured.expected:.6g}",
            **wrong.claim_fields,
            specificity=2,
        )


def valued(**changes: float) -> Step:
    """A step of PPO: values, returns and advantages by the recursion, with γ and λ as given."""
    step = example_step(setup={"algo": "ppo", "advantage": "gae", "gamma": 0.99, "lam": 0.9, "whiten": True})
    value_N = (0.5 + 0.1 * torch.linspace(0, 9, len(step.sample_of_token)).sin()).masked_fill(
        ~step.tokens["policy_mask"], torch.nan
    )
    step = changed_step(step, value=value_N)
    returns_N, advantage_N = expected_gae(
        step, trajectories_of(step), bootstrapped=False, whiten=True, **changes
    )
    return with_token_gradients(changed_step(step, returns=returns_N.float(), advantage=advantage_N.float()))


def example() -> Step:
    """γ and λ are passed in the wrong order."""
    return valued(gamma=0.9, lam=0.99)


def with_a_cut() -> Step:
    """The last rollout was cut, and its end counts with the critic's value."""
    step = valued()
    last = len(step.samples) - 1
    step = changed_step(step, samples={last: {"truncated": True, "bootstrap_value": 0.4}})
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
        "sample.reward",
        "setup.gamma",
        "setup.lam",
        "setup.advantage",
    ),
    taints=("policy", "critic"),
    applies=lambda step: (
        step.setup.algo in ("ppo", None)
        and step.setup.advantage in ("gae", None)
        and not step.metrics.get("gate/held_back")  # the record lacks the samples of skipped steps
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(valued, with_a_cut),
)
