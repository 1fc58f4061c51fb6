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


def judge(step: Step) -> Iterator[Claim]:
    """Compare with the legal variant that fits best; if none fits, name the mistake that does."""
    chains = trajectories_of(step)
    cut = sum(not math.isnan(chain.bootstrap_value) for chain in chains)
    whitenings = [step.setup.whiten] if step.setup.whiten is not None else [True, False]
    ends = [step.setup.bootstraps] if step.setup.bootstraps is not None else [True, False]
    tried = []
    for bootstrapped in ends if cut else [False]:
        for whiten in whitenings:
            expected = expected_gae(step, chains, bootstrapped=bootstrapped, whiten=whiten)
            wrong = differing(step, expected)
            if not any(wrong):
                return
            tried.append((bootstrapped, whiten, expected, wrong))
    bootstrapped, whiten, expected, wrong = min(tried, key=lambda each: sum(x.tokens for x in each[3]))
    worth = "the critic's value" if bootstrapped else "nothing"
    note = f"; {cut} rollouts were cut, and their end counts with {worth}" if cut else ""
    reading = _reading(step, chains, bootstrapped, whiten)
    yield recomputed_claim(step, expected, wrong, "rewards and values", reading, note)


def recomputed_claim(
    step: Step,
    expected: tuple[Tensor, Tensor],
    wrong: tuple[Places, Places],
    source: str,
    reading: str,
    note: str = "",
) -> Claim:
    """Return that returns, or else advantages, differ from those that ``source`` gives."""
    name, stream, where, right_N = next(
        each
        for each in zip(("returns", "advantages"), ("returns", "advantage"), wrong, expected, strict=True)
        if each[2]
    )
    token = step.starts[where.row] + where.start
    return Claim(
        Verdict.PROVEN,
        f"{where.tokens} of {where.compared} {name} differ from a recomputation from {source}"
        + (f": {reading}" if reading else ""),
        got=f"{float(step.tokens[stream][token]):.6g} at sample {where.row}, token {where.start}{note}",
        expected=f"{float(right_N[token]):.6g}",
        **where.claim_fields,
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
    judge=judge,
    example=example,
    lookalikes=(valued, with_a_cut),
)
