"""SMP002: Weights of an earlier step sampled the tokens.

What: The sampler's weights differ from those at the start of the step, or changed within a step.

Why it is silent: Policies a few steps apart give nearly the same answers. The ratio is a little off,
which looks like learning, and the baseline compares rollouts of two policies. In bfloat16 the difference is
below rounding; only a digest shows it.

How it is measured: Each turn carries the digest and the version of the weights that sampled it. Within a
step all must be equal. A digest that an earlier step of the run had before or after it, and this one has
not, names the version. In Truing the version is the count of all steps so far.

Healthy look-alikes: A sampler with a declared lag (`engine.ahead`), up to that lag. Beside TRL the digest is
that of the weights last sent to vLLM: whether it loaded them, SMP004 and RAT002 show.
Demonstrations, which no sampler sampled. Weights that did not move, and keep their digest. Digests of a
part of a large model, which compare with no other.

Fix: Sync the sampler after each step, and let the sync return the digest of the loaded weights, not of
the sent ones.

References: https://arxiv.org/abs/2505.24298, docs/control.md
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.status import FinishReason


class Measured(NamedTuple):
    """The weights that sampled the turns."""

    digests: tuple[str, ...]
    versions: tuple[int, ...]
    turns: int
    row: int  # the first sample with another digest or version than the sample before
    behind: int  # steps, by a recorded digest; 0 without one
    short: int  # steps, by the version; 0 without one
    ahead: int  # declared steps


def measure(step: Step) -> Measured:
    """Compare digests and versions of all sampled turns with those of earlier steps."""
    seen: list[tuple[str, int]] = []
    other = None
    for index, row in enumerate(step.samples):
        for turn in row.turns:
            if step.kept[index] and turn.finish_reason != FinishReason.DEMO and turn.weight_digest:
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
        step.setup.ahead,
    )


def _behind(step: Step, digest: str) -> int:
    """Return how many steps ago the weights had this digest; 0 for now or never."""
    weights = step.facts.get("weights")
    if not weights or digest == weights["before"]:
        return 0
    earlier = [each.facts.get("weights", {}) for each in step.past]
    if earlier and earlier[-1].get("next") != weights["before"]:
        return 0  # other code wrote into the weights since: OPT002 covers it
    for ago, each in enumerate(reversed(earlier), start=1):
        if digest == each.get("before"):
            return ago
    return 0


def _short(step: Step, version: int) -> int:
    """Return the steps so far minus the version, in a run with a complete record."""
    if step.setup.trainer != "truing" or not all("weights" in each.facts for each in step.past):
        return 0
    return max(step.steps_of_run - version, 0)


def judge(step: Step) -> Iterator[Claim]:
    """Claim several policies in a step, or an old one."""
    measured = measure(step)
    if not measured.turns:
        yield Claim(Verdict.NOT_CHECKED, "the version of the weights that sampled each turn")
        return
    behind = max(measured.behind, measured.short)
    states = max(len(measured.digests), len(measured.versions))
    if states > 1:
        yield Claim(
            Verdict.PROVEN,
            f"the {measured.turns} turns of this step come from {states} different versions of the weights",
            got=f"digests {', '.join(measured.digests[:3])}; versions"
            f" {', '.join(map(str, measured.versions[:3]))}",
            expected="one",
            row=measured.row,
            specificity=2.5,
        )
    elif behind > measured.ahead:
        yield Claim(
            Verdict.PROVEN,
            f"the sampler's weights are {behind} step{'s' * (behind > 1)} old",
            got=f"version {measured.versions[0]}, digest {measured.digests[0]}",
            expected=f"at most {measured.ahead}, engine.ahead"
            if measured.ahead
            else "the weights at the start of the step",
            specificity=2.5,
        )


def example() -> Step:
    """The sampler was not synced after the previous step."""
    left = {"weights": {"before": "a", "after": "b", "next": "b"}}
    now = {"weights": {"before": "b", "after": "c", "next": "c"}}
    return changed_step(example_step(), past=[past_step(0, facts=left)], facts=now)


def synced() -> Step:
    """A synced sampler: the second step's turns have its digest, and its version."""
    step = example()
    return drawn_by(step, "b", 1)


def declared_lag() -> Step:
    """Weights of the step before sampled the tokens, as `engine.ahead = 1` declares."""
    step = example()
    return replace(step, setup=replace(step.setup, ahead=1, on_policy=False))


def drawn_by(step: Step, digest: str, version: int) -> Step:
    """Return the step with turns sampled by these weights."""
    turns = [
        tuple(replace(turn, weight_digest=digest, sampler_version=version) for turn in row.turns)
        for row in step.samples
    ]
    return changed_step(step, samples={index: {"turns": each} for index, each in enumerate(turns)})


RULE = Rule(
    code="SMP002",
    name="stale-sampler",
    kind="E",
    needs=("sample.turns", "setup.on_policy"),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step)
        and (step.setup.on_policy is not False or step.setup.ahead > 0)
        and step.setup.algo not in ("sft", "rft")
    ),
    judge=judge,
    example=example,
    lookalikes=(synced, declared_lag),
)
