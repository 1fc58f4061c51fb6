"""SMP009: Tokens are not those that their random numbers draw.

What: A token was drawn that another one should have been: the number that it was drawn by falls on another
token of the declared distribution, and by more than rounding.

Why it is silent: Whatever a token was drawn from, its log-probability under the declared distribution is a
number like any other, and where sampler and trainer report that one every ratio is 1. A temperature, a
truncation, a penalty, weights that are one update old: all of it hides in the draw alone.

How it is measured: A draw inverts the cumulative distribution at a number that the recipe's seed, the step,
the task's place and the attempt name. In every update the forward that is trained also tells, of some
hundred tokens or all, where their intervals lie, and each number must lie in that of the token that was
drawn; at a look some attempts' distributions are computed anew. What differs is tried against other
temperatures, truncations and penalties: where one of them draws every token, it is named. In TRL the numbers
are those of torch's generator, whose state is kept from before a generation: ids run a race, and how far the
drawn one is behind the first is told in nats. Where draws agree no more often than by chance, the sampler
has other numbers, and nothing is said.

Healthy look-alikes: A number at the very edge of an interval, which rounding moves: a thousandth of the
whole is allowed, and in another precision than float32 four times what rounding at random changes. A sampler
with random numbers of its own, as an inference engine has: it is not replayed, and its draws are bet on
(SMP007). On a GPU the comparison is never proof.

Fix: Draw from what is scored: the same weights, the same temperature, the same truncation and penalties.

References: https://en.wikipedia.org/wiki/Inverse_transform_sampling, docs/notation.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.forward_difference import MEAN_MULTIPLES, NULL_MULTIPLES
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

AGREE = 1e-3
"""Nats: where trainer and sampler are farther apart, RAT002 says so, and draws are for a look to judge."""

SEVERAL, MANY = 2, 0.1
"""Tokens, and the share of them, that rounding does not move that far in another precision than float32: one
it does, where a router chooses."""


class Measured(NamedTuple):
    """Draws made once more."""

    tokens: int
    missed: int  # of them are off by more than the edge of an interval
    largest: float  # how far a number is from the interval of its token, in [0, 1]; in a race, nats
    null: float  # the trainer from itself, nats
    rounding: float | None  # what rounding at random changes of any log-probability; not asked in float32
    instead: str  # what draws every token; "" where nothing that was tried does
    device: str
    row: int | None
    token: int

    @property
    def bound(self) -> float:
        """By how much rounding alone may miss a token."""
        return max(
            TOLERANCE, NULL_MULTIPLES * self.null if self.rounding is None else MEAN_MULTIPLES * self.rounding
        )

    @property
    def sure(self) -> bool:
        """Whether it was replayed in float32 on a CPU; in another precision, and many tokens are missed."""
        if self.rounding is None:
            return self.device == "cpu"
        return self.device.startswith("cpu") and self.missed >= MANY * self.tokens


def measure(step: Step) -> Measured:
    """As they were replayed at a look, or else by the update's own forward."""
    replay = step.facts["audit"]["replay"] if "replay" in step.facts.get("audit", {}) else {}
    own = step.facts.get("draws", {})
    if (
        own
        and step.numbers.get("mismatch/max_abs", 0.0) <= AGREE
        and own["largest"] > replay.get("largest", -1.0)
    ):
        replay = {"instead": replay.get("instead", ""), **own}
    sample, token = replay.get("where", ("", 0))
    row = next((index for index, row in enumerate(step.rows) if row.sample_id == sample), None)
    itself = step.facts.get("plain", {}).get("itself", 0.0)
    null = step.facts.get("null", {}).get("logprob", itself)
    told = replay.get("tokens", 0), replay.get("missed", 0), replay.get("largest", 0.0)
    about = replay.get("instead", ""), replay.get("device", "cpu")
    return Measured(*told, null, replay.get("rounding"), *about, row, int(token))


def judge(found: Measured) -> Iterator[Claim]:
    """A number is in an interval, or it is not."""
    if found.largest > found.bound and (found.rounding is None or found.missed >= SEVERAL):
        instead = f": {found.instead} would" if found.instead else ""
        yield Claim(
            Verdict.PROVEN if found.sure else Verdict.SUSPECT,
            f"{found.missed} of {with_count(found.tokens, 'token')} are not what their random numbers draw from"
            f" the declared distribution{instead}",
            got=f"a number that misses the token that was drawn by {found.largest:.2g}",
            expected=f"by {found.bound:.2g} at most: rounding",
            row=found.row,
            start=found.token,
            end=found.token + 1,
            specificity=1.5,
        )


def _replayed(**known: object) -> Step:
    replay = {"tokens": 128, "missed": 0, "largest": 2e-7, "instead": "", "where": ("s0", 5)} | known
    return changed_step(example_step(), facts={"audit": {"tokens": 128, "gains": {}, "replay": replay}})


def example() -> Step:
    """The sampler divides by another temperature."""
    return _replayed(missed=31, largest=0.2, instead="a temperature 1.3 times as high")


def in_bfloat16() -> Step:
    """A number between two tokens whose log-probabilities have two or three digits."""
    return _replayed(missed=0, largest=0.03, device="cpu, torch.bfloat16", rounding=0.02)


def another_expert() -> Step:
    """In float16 a router chose another expert at one token."""
    return _replayed(missed=1, largest=0.8, device="cpu, torch.float16", rounding=0.03)


def at_an_edge() -> Step:
    """A number between two tokens."""
    return _replayed(largest=4e-6)


def of_another_forward() -> Step:
    """Between looks, where trainer and sampler say other things of the same tokens."""
    draws = {"tokens": 64, "missed": 9, "largest": 0.2, "where": ("s0", 5)}
    return changed_step(example_step(), facts={"draws": draws}, numbers={"mismatch/max_abs": 0.4})


RULE = Rule(
    code="SMP009",
    name="draws-not-replayed",
    kind="M",
    needs=("facts.audit | facts.draws",),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step) and ("draws" in step.facts or "replay" in step.facts.get("audit", {"replay": {}}))
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(at_an_edge, in_bfloat16, another_expert, of_another_forward),
)
