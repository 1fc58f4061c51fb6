"""SMP009: Sampled tokens do not follow from their random numbers.

What: Another token should have been sampled: the random number selects another token of the declared
distribution, and by more than rounding.

Why it is silent: For any sampling distribution, the log-probability under the declared one is a number like
any other, and if sampler and trainer report that one every ratio is 1. A temperature, a truncation, a
penalty, weights that are one step old: all of it shows in the draw alone.

How it is measured: A draw inverts the cumulative distribution at a number determined by the recipe's seed,
the step, the task's place and the rollout. In every step the trained forward also gives the intervals of
some hundred tokens or all, and each number must lie in the interval of the sampled token. An audit
recomputes some rollouts' distributions, in another precision than float32 also under random rounding. The
rule tries other temperatures, truncations and penalties on any difference: if one of them gives every
token, the finding names it. In TRL the numbers come from torch's generator, whose state is saved before a
generation: the draw is an exponential race between ids, and the check measures in nats how far the sampled
one is behind the first. vLLM samples by such a race too, with a seed per request: audits run it again for a
server on a CPU that computes in the trainer's precision or in float32, and answers that follow from the
random numbers of another rollout of their group are named as exchanged. If draws agree no more often than by
chance, the sampler has other random numbers, and the rule makes no claim, unless all ids are the likeliest
ones, with a chance below 10⁻⁶: greedy decoding.

Healthy look-alikes: A number at the very edge of an interval, which rounding moves: a thousandth of the
whole is allowed, and in another precision than float32 four times the change of an interval's end (in a race
of a log-probability) by random rounding, or four times the difference of vLLM's scores at its publication.
There a race under top-k, top-p or min-p is not replayed, since rounding decides which ids they keep. A
sampler with random numbers that are not known, as vLLM on a GPU: the check does not replay it, and bets on
its draws (SMP007). In another precision than float32 it is proof if a tenth of the tokens are off by more
than that. Nothing is where the trainer, whose distributions are replayed, differs from a plain forward
(SMP005), or takes wrong routes in a mixture of experts (SMP012).

Fix: Sample from the scored distribution: the same weights, the same temperature, the same truncation and
penalties.

References: https://en.wikipedia.org/wiki/Inverse_transform_sampling, docs/notation.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.forward_difference import MEAN_MULTIPLES, NULL_MULTIPLES, forward_difference
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.doctor.rounding_tolerance import computes_in_float32
from truing.doctor.route_difference import are_routes_wrong
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

AGREE = 1e-3
"""Nats: RAT002 reports a larger difference of trainer and sampler, and only an audit checks those draws."""

SEVERAL, MANY = 2, 0.1
"""Tokens, and their share, beyond rounding in another precision than float32: a router moves one by choosing
another expert, and on a device that rounds five times as coarsely as random rounding, one of a hundred
tokens would be beyond four times its largest change."""


class Measured(NamedTuple):
    """Replayed draws."""

    tokens: int
    missed: int  # outside their interval by more than rounding
    largest: float  # distance of a number from the interval of its token, in [0, 1]; in a race, nats
    null: float  # the trainer from itself, nats
    rounding: float | None  # largest change by random rounding, in the units of ``largest``; None in float32
    instead: str  # the setting that gives every token; "" without one
    device: str
    other_routes: bool  # whether the distributions are of other experts than the sampler's
    other_trainer: bool  # whether the trainer, which computes them, differs from a plain forward
    row: int | None
    token: int

    @property
    def bound(self) -> float:
        """Return the largest miss that rounding explains."""
        return max(
            TOLERANCE, NULL_MULTIPLES * self.null if self.rounding is None else MEAN_MULTIPLES * self.rounding
        )

    @property
    def sure(self) -> bool:
        """Return whether it is float32, or another precision with many misses."""
        if self.other_routes or self.other_trainer:
            return False
        if self.rounding is None:
            return computes_in_float32(self.device)
        return self.missed >= MANY * self.tokens


def measure(step: Step) -> Measured:
    """Read the replay of an audit, or else of the step's own forward."""
    replay = step.facts["audit"]["replay"] if "replay" in step.facts.get("audit", {}) else {}
    own = step.facts.get("draws", {})
    if (
        own
        and step.metrics.get("mismatch/max_abs", 0.0) <= AGREE
        and own["largest"] > replay.get("largest", -1.0)
    ):
        replay = {"instead": replay.get("instead", ""), **own}
    sample, token = replay.get("where", ("", 0))

    itself = step.facts.get("plain", {}).get("itself", 0.0)
    facts = reversed(step.facts_of_stage)
    null = next((each["null"]["logprob"] for each in facts if "null" in each), itself)
    counts = replay.get("tokens", 0), replay.get("missed", 0), replay.get("largest", 0.0)
    other_trainer = "plain" in step.facts and forward_difference(step, "trainer").differs("trainer")
    about = replay.get("instead", ""), replay.get("device", "cpu"), are_routes_wrong(step), other_trainer
    return Measured(*counts, null, replay.get("rounding"), *about, step.row_of(sample), int(token))


def judge(step: Step) -> Iterator[Claim]:
    """Claim numbers outside their intervals."""
    measured = measure(step)
    if measured.largest > measured.bound and (measured.rounding is None or measured.missed >= SEVERAL):
        instead = f": {measured.instead} explains all of them" if measured.instead else ""
        yield Claim(
            Verdict.PROVEN if measured.sure else Verdict.SUSPECT,
            f"{measured.missed} of {with_count(measured.tokens, 'token')} do not follow from their random"
            f" numbers and the declared distribution{instead}",
            got=f"a random number that misses its token by {measured.largest:.2g}",
            expected=f"at most {measured.bound:.2g}: rounding",
            row=measured.row,
            start=measured.token,
            end=measured.token + 1,
            specificity=1.5,
        )


def _replayed(**known: object) -> Step:
    replay = {"tokens": 128, "missed": 0, "largest": 2e-7, "instead": "", "where": ("s0", 5)} | known
    return changed_step(example_step(), facts={"audit": {"tokens": 128, "gains": {}, "replay": replay}})


def example() -> Step:
    """The sampler divides by another temperature."""
    return _replayed(missed=31, largest=0.2, instead="a temperature 1.3 times as high")


def in_bfloat16() -> Step:
    """A number between two tokens with log-probabilities of two or three digits."""
    return _replayed(missed=0, largest=0.03, device="cpu, torch.bfloat16", rounding=0.02)


def another_expert() -> Step:
    """In float16 a router chooses another expert at one token."""
    return _replayed(missed=1, largest=0.8, device="cpu, torch.float16", rounding=0.03)


def at_an_edge() -> Step:
    """A number between two tokens."""
    return _replayed(largest=4e-6)


def of_another_forward() -> Step:
    """Between audits, with a difference of trainer and sampler at the same tokens."""
    draws = {"tokens": 64, "missed": 9, "largest": 0.2, "where": ("s0", 5)}
    return changed_step(example_step(), facts={"draws": draws}, metrics={"mismatch/max_abs": 0.4})


RULE = Rule(
    code="SMP009",
    name="draws-not-replayed",
    kind="M",
    needs=("facts.audit | facts.draws",),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step) and ("draws" in step.facts or "replay" in step.facts.get("audit", {"replay": {}}))
    ),
    judge=judge,
    example=example,
    lookalikes=(at_an_edge, in_bfloat16, another_expert, of_another_forward),
)
