"""ADV010: REINFORCE's returns or advantages differ from a recomputation.

What: Returns recomputed from the recorded rewards, or advantages recomputed from the returns, differ. The
trainer used another discount, a missing or different baseline, or left out a penalty or the cost of the KL.

Why it is silent: Without its baseline REINFORCE still learns, but needs far more rollouts. With another
discount it reinforces the last tokens alone. No scalar is wrong.

How it is measured: Along the tokens that the policy chose, R = r + γ R′ in Python's floats. The reward is
at the last of them, the reward of a turn is at the turn's last token, and the cost of a KL in the reward is
at each. If declared, the mean reward of all other rollouts is subtracted, and the result is normalised to
mean 0 and deviation 1 over the trained tokens.

Healthy look-alikes: A step of one rollout, whose baseline is its own reward. Tokens of tools and templates,
which take no time. Declared penalties for cut or long rollouts.

Fix: Compute the baseline over the step's rollouts, each once, without the rollout itself. Apply the
discount per chosen token.

References: https://link.springer.com/article/10.1007/BF00992696, https://arxiv.org/abs/2402.14740
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.oracle.advantages import expected_reinforce_advantages, trajectories_of
from truing.doctor.rule import Rule
from truing.doctor.rules.adv006 import differing, recomputed_claim
from truing.doctor.verdict import Claim


def _reading(step: Step) -> str:
    """Return the usual mistake that gives the recorded numbers, as text."""
    declared = step.setup
    mistakes = {
        "the baseline is left out": changed_step(step, setup={"baseline": "none"}),
        "γ is 1": changed_step(step, setup={"gamma": 1.0}),
        "they are not normalised": changed_step(step, setup={"whiten": False}),
        "they are normalised, and no normalisation is declared": changed_step(step, setup={"whiten": True}),
        "the KL in the reward costs nothing": changed_step(step, setup={"kl_where": "loss"}),
        "penalties are left out": changed_step(step, setup={"truncated": "keep", "overlong_tokens": 0}),
    }
    for mistake, tried in mistakes.items():
        if tried.setup != declared and not any(
            differing(step, expected_reinforce_advantages(tried, trajectories_of(tried)))
        ):
            return mistake
    return ""


def judge(step: Step) -> Iterator[Claim]:
    """Recompute, and claim any difference: the sums have one value."""
    expected = expected_reinforce_advantages(step, trajectories_of(step))
    wrong = differing(step, expected)
    if any(wrong):
        yield recomputed_claim(step, expected, wrong, "the rewards", _reading(step))


DECLARED = {"algo": "reinforce", "advantage": "return", "gamma": 0.9, "baseline": "step", "whiten": False}


def returned(**changes: object) -> Step:
    """Return a step of REINFORCE, computed with the declared settings or with ``changes``."""
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
    """The last rollout was cut, and has a penalty."""
    step = changed_step(
        example_step(setup=DECLARED | {"truncated": "penalize", "truncated_penalty": 0.5}),
        samples={7: {"truncated": True}},
    )
    returns_N, advantage_N = expected_reinforce_advantages(step, trajectories_of(step))
    return with_token_gradients(changed_step(step, returns=returns_N.float(), advantage=advantage_N.float()))


RULE = Rule(
    code="ADV010",
    name="returns-recomputed",
    kind="M",
    needs=("advantage", "policy_mask", "sample.reward", "setup.gamma", "setup.advantage", "setup.baseline"),
    taints=("policy",),
    applies=lambda step: (
        step.setup.algo in ("reinforce", None)
        and step.setup.advantage in ("return", None)
        and not step.metrics.get("gate/held_back")  # the record lacks the samples of skipped steps
    ),
    judge=judge,
    example=example,
    lookalikes=(returned, penalised),
)
