"""SMP002: Tokens were drawn by weights of an earlier update.

What: The sampler's weights are not those that the update begins with, or changed while a step was drawn.

Why it is silent: Policies a few updates apart say nearly the same. The ratio is a little off, which the
clip takes for learning, and the baseline compares attempts of two policies. In bfloat16 the difference
drowns in rounding; only a digest tells.

How it is measured: Each turn carries the digest and the number of the weights that drew it. Within a step
all must be alike. A digest that an earlier update of the run had before or after it, and this one has not,
names the version. In Truing the number is the count of all updates so far.

Healthy look-alikes: A sampler that is declared to lag behind, with a correction: then the rule is not
asked. Demonstrations, which nobody sampled. Weights that did not move, and keep their digest. Digests of a
part of a large model, which compare with no other.

Fix: Sync the sampler after each update, and let the sync return the digest of what the sampler has loaded,
not of what was sent.

References: https://arxiv.org/abs/2505.24298, docs/control.md
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.status import FinishReason


class Measured(NamedTuple):
    """Which weights drew the turns."""

    digests: tuple[str, ...]
    versions: tuple[int, ...]
    turns: int
    row: int  # the first row that has another digest or version than the row before
    behind: int  # updates, by a digest that is on record; 0 where it is not
    short: int  # updates, by the count; 0 where there is none


def measure(step: Step) -> Measured:
    """Digests and versions of all sampled turns, and where they are known from."""
    seen: list[tuple[str, int]] = []
    other = None
    for index, row in enumerate(step.rows):
        for turn in row.turns:
            if row.kept and turn.finish_reason != FinishReason.DEMO and turn.weight_digest:
                this = turn.weight_digest, turn.sampler_version
                other = index if other is None and seen and this != seen[0] else other
                seen.append(this)
    digests, versions = (
        tuple(sorted(set(column))) for column in (zip(*seen, strict=True) if seen else ((), ()))
    )
    return Measured(
        digests,
        versions,
        len(seen),
        other or 0,
        max((_behind(step, digest) for digest in digests), default=0),
        max((_short(step, version) for version in versions), default=0),
    )


def _behind(step: Step, digest: str) -> int:
    """How many updates ago a digest was that of the weights; 0 where it is now, or never was."""
    weights = step.facts.get("weights")
    if not weights or digest == weights["before"]:
        return 0
    earlier = [each.facts.get("weights", {}) for each in step.past]
    if earlier and earlier[-1].get("next") != weights["before"]:
        return 0  # somebody wrote into the weights since: OPT002 tells
    for ago, each in enumerate(reversed(earlier), start=1):
        if digest == each.get("before"):
            return ago
    return 0


def _short(step: Step, version: int) -> int:
    """By how much a version is less than the updates made so far, in a run whose record is whole."""
    if step.setup.trainer != "truing" or not all("weights" in each.facts for each in step.past):
        return 0
    return max(len(step.past) - version, 0)


def judge(found: Measured) -> Iterator[Claim]:
    """One step, one policy, and the one that is updated."""
    behind = max(found.behind, found.short)
    states = max(len(found.digests), len(found.versions))
    if states > 1:
        yield Claim(
            Verdict.PROVEN,
            f"the {found.turns} turns of this step were drawn by {states} different states of the weights",
            got=f"digests {', '.join(found.digests[:3])}; versions {', '.join(map(str, found.versions[:3]))}",
            expected="one",
            row=found.row,
            specificity=2.5,
        )
    elif behind:
        yield Claim(
            Verdict.PROVEN,
            f"the sampler's weights are {behind} update{'s' * (behind > 1)} old",
            got=f"version {found.versions[0]}, digest {found.digests[0]}",
            expected="the weights that the update begins with",
            specificity=2.5,
        )


def example() -> Step:
    """The sampler was not synced after the update before."""
    left = {"weights": {"before": "a", "after": "b", "next": "b"}}
    now = {"weights": {"before": "b", "after": "c", "next": "c"}}
    return replace(changed_step(example_step(), past=[past_step(0, facts=left)], facts=now), step=1)


def synced() -> Step:
    """It was synced: the second update's turns have its digest, and its number."""
    step = example()
    return drawn_by(step, "b", 1)


def drawn_by(step: Step, digest: str, version: int) -> Step:
    """The step with turns that these weights drew."""
    turns = [
        tuple(replace(turn, weight_digest=digest, sampler_version=version) for turn in row.turns)
        for row in step.rows
    ]
    return changed_step(step, rows={index: {"turns": each} for index, each in enumerate(turns)})


RULE = Rule(
    code="SMP002",
    name="stale-sampler",
    kind="E",
    needs=("row.turns", "setup.on_policy"),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step) and step.setup.on_policy is not False and step.setup.algo not in ("sft", "rft")
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(synced,),
)
