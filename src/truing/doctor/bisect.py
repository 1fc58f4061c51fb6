"""The first differing part of a trainer: each part swapped for a second implementation on a stored step.

A part gets its recorded inputs, and the output of the second implementation replaces the recorded one. The
first part in the order of a token's journey whose swap changes anything is the faulty one: later parts get
the same wrong input in both.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.oracle.advantages import (
    expected_gae,
    expected_group_advantages,
    expected_reinforce_advantages,
    trajectories_of,
)
from truing.doctor.oracle.credit import GROUP_FORMULAS
from truing.doctor.oracle.token_gradients import expected_token_gradients
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES, msk003
from truing.doctor.rules.msk002 import declared_exclusions, declared_mask
from truing.doctor.token_places import places
from truing.doctor.verdict import STRONG_VERDICTS
from truing.types.token import Origin
from truing.utils.format import with_count

Part = Literal[
    "template",
    "ids",
    "sampler",
    "old",
    "reward",
    "mask",
    "reference",
    "critic",
    "advantage",
    "forward",
    "draws",
    "loss",
    "optimizer",
    "metrics",
]
"""Parts of a trainer, in the order of a token's journey; draws come after the forward that replays them."""

RULES_OF: Mapping[Part, tuple[str, ...]] = {
    "template": (),
    "ids": ("TOK001", "TOK002", "TOK003", "TOK004"),
    "sampler": ("SMP001", "SMP003", "SMP004"),
    "old": ("RAT001", "RAT003", "RAT007", "RAT008"),
    "reward": ("RWD002", "RWD008", "TOK006"),
    "mask": ("MSK001", "MSK002", "MSK004", "MSK005", "MSK008"),
    "reference": ("REF001", "REF002", "REF003", "REF004", "REF005"),
    "critic": ("VAL001", "VAL002", "VAL003"),
    "advantage": ("ADV001", "ADV005", "ADV006", "ADV007", "ADV008", "ADV010"),
    "forward": ("SMP005", "SMP006", "SMP012"),
    "draws": ("SMP007", "SMP008", "SMP009"),
    "loss": ("MSK003", "MSK007", "OPT006"),
    "optimizer": ("OPT001", "OPT002", "OPT003", "OPT004", "OPT007", "OPT008", "OPT009", "OPT010"),
    "metrics": ("RAT006",),
}
"""Rules of a part, for a part without a swap or with an equal result."""


SwapState = Literal["same", "differs", "not swapped"]


@dataclass(frozen=True)
class Swapped:
    """A step with one part's output by reference."""

    step: Step
    differs: bool  # from the record
    detail: str  # places and size of the difference


Swap = Callable[[Step], Swapped | str]
"""Returns a part's second implementation, or a text with the reason for its absence."""


@dataclass(frozen=True)
class Trial:
    """The result of swapping one part."""

    part: Part
    state: SwapState
    detail: str
    gradient: float | None = None  # ‖after − before‖ ÷ ‖before‖ of all token gradients; inf from 0
    clears: tuple[str, ...] = ()  # rules without a proof after the swap


def bisect(step: Step, extra_swaps: Mapping[Part, Swap]) -> list[Trial]:
    """Swap each part; ``extra_swaps`` are those that need a model, a renderer or graders."""
    swaps = {**SWAPS, **extra_swaps}
    return [_trial(step, part, swaps.get(part)) for part in RULES_OF]


def first_differing(trials: Sequence[Trial]) -> Trial | None:
    """Return the first part whose swap changes anything."""
    return next((each for each in trials if each.state == "differs"), None)


def _trial(step: Step, part: Part, swap: Swap | None) -> Trial:
    swapped = f"no second implementation of the {part}" if swap is None else swap(step)
    by_rules = _rules_say(step, RULES_OF[part])
    if isinstance(swapped, Swapped) and swapped.differs:
        after = _downstream(step, swapped.step)
        clears = tuple(code for code in _proven_codes(step) if code not in _proven_codes(after))
        return Trial(part, "differs", swapped.detail, _change(step, after), clears)
    if by_rules.state != "not swapped" and (isinstance(swapped, str) or by_rules.state == "differs"):
        why_not_swapped = f"; {swapped}" if isinstance(swapped, str) and swap is not None else ""
        return Trial(part, by_rules.state, by_rules.detail + why_not_swapped)
    if isinstance(swapped, str):
        return Trial(part, "not swapped", swapped if swap is not None else by_rules.detail or swapped)
    return Trial(part, "same", swapped.detail)


def _downstream(before: Step, after: Step) -> Step:
    """Return the swapped step with its token gradients; a fault of the loss itself remains."""
    gradients = [step.tokens.get("token_gradient") for step in (before, after)]
    if gradients[0] is None or gradients[1] is None or not _equal(gradients[0], gradients[1]):
        return after
    if len(after.sample_of_token) != len(before.sample_of_token) or before.missing(RULES["MSK003"].needs):
        return after
    follows_N = expected_token_gradients(after) - expected_token_gradients(before)
    return changed_step(
        after, token_gradient=before.tokens["token_gradient"].double().nan_to_num() + follows_N
    )


def _equal(first_N: Tensor, second_N: Tensor) -> bool:
    """Return whether two streams are equal to the bit; NaN is NaN."""
    if first_N.shape != second_N.shape or not torch.equal(first_N.isnan(), second_N.isnan()):
        return False
    return torch.equal(first_N.nan_to_num(), second_N.nan_to_num())


def _change(before: Step, after: Step) -> float | None:
    was_N, is_N = before.tokens.get("token_gradient"), after.tokens.get("token_gradient")
    if was_N is None or is_N is None or len(was_N) != len(is_N):
        return None
    was_N, is_N = was_N.double().nan_to_num(), is_N.double().nan_to_num()
    moved, length = float((is_N - was_N).norm()), float(was_N.norm())
    return moved / length if length else math.inf if moved else 0.0


def _proven_codes(step: Step) -> list[str]:
    """Return codes of all strong findings of a step."""
    findings = examine(step, RULES.values())
    return list(dict.fromkeys(each.code for each in findings if each.claim.verdict in STRONG_VERDICTS))


class _Verdict(NamedTuple):
    """The result of a part's rules."""

    state: SwapState
    detail: str


def _rules_say(step: Step, codes: Sequence[str]) -> _Verdict:
    rules = [RULES[code] for code in codes if RULES[code].applies(step)]
    able = [rule for rule in rules if not step.missing(rule.needs)]
    if not able:
        lacking = dict.fromkeys(need for rule in rules for need in step.missing(rule.needs))
        return _Verdict("not swapped", f"needs {'; '.join(lacking)}" if lacking else "")
    claims = [(rule.code, claim) for rule in able for claim in rule.judge(step)]
    strong = [f"{code}: {claim.what}" for code, claim in claims if claim.verdict in STRONG_VERDICTS]
    if strong:
        return _Verdict("differs", strong[0])
    return _Verdict("same", f"clean by {', '.join(rule.code for rule in able)}")


def swap_old(step: Step) -> Swapped | str:
    """Replace old log-probabilities by the sampler's, if the run declares that they are equal."""
    if step.setup.on_policy is not True or not step.has("sampler_logprob") or not step.has("old_logprob"):
        return "the source of old log-probabilities is not declared, or not recorded"
    if step.setup.trainer != "truing":
        return "another trainer may compute them again, with rounding of its own: RAT007 judges them"
    sampler_N, old_N = step.tokens["sampler_logprob"].double(), step.tokens["old_logprob"].double()
    known_N = step.tokens["policy_mask"] & ~sampler_N.isnan()
    where = places(step, known_N & (sampler_N != old_N))
    after = changed_step(step, old_logprob=torch.where(known_N, sampler_N, old_N))
    return Swapped(after, bool(where), str(where) if where else with_count(int(known_N.sum()), "token"))


def swap_mask(step: Step) -> Swapped | str:
    """Replace masks by those from origin, mask policy, and declared exclusions."""
    if step.missing(("origin", "policy_mask", "supervised_mask", "setup.mask")):
        return "needs the origin of each token"
    if step.setup.mask == "no_structure" and "structure" not in step.tokens:
        return "needs the scaffolding tokens of calls"
    origin_N = step.tokens["origin"]
    updated = torch.tensor(step.kept)[step.sample_of_token]
    expected = {
        "policy_mask": declared_mask(step) & ~declared_exclusions(step) & updated,
        "supervised_mask": (origin_N == Origin.DEMO) & updated,
    }
    wrong_N = torch.zeros_like(updated)
    for name, expected_N in expected.items():
        wrong_N |= expected_N != (step.tokens[name] & updated)
    looked_at = int((step.tokens["policy_mask"] | step.tokens["supervised_mask"]).sum())
    after = changed_step(step, tokens=expected)
    advantage_N = _advantages(after)
    if advantage_N is not None and "advantage" in step.tokens:
        got_N = step.tokens["advantage"].double()
        after = changed_step(after, advantage=torch.where(got_N.isnan(), advantage_N, got_N))
    where = places(step, wrong_N, looked_at)
    return Swapped(
        after, bool(where), str(where) if where else f"{with_count(looked_at, 'token')} under a loss"
    )


def swap_advantage(step: Step) -> Swapped | str:
    """Replace advantages by the declared formula, under the policy loss."""
    if "advantage" not in step.tokens:
        return "this stage has no advantages"
    expected_N = _advantages(step)
    if expected_N is None:
        return "its formula is not declared, or lacks inputs"
    got_N = step.tokens["advantage"].double()
    known_N = step.tokens["policy_mask"] & ~expected_N.isnan()
    scale = float(expected_N[known_N].abs().max()) if known_N.any() else 0.0
    apart_N = (got_N - expected_N).abs()
    wrong_N = known_N & ~(apart_N <= ROUNDING * max(scale, ROUNDING))
    worst = float(apart_N[known_N].nan_to_num(0.0).max()) if known_N.any() else 0.0
    after = changed_step(step, advantage=torch.where(known_N, expected_N, got_N))
    where = places(step, wrong_N)
    differing = str(where) if where else with_count(int(known_N.sum()), "token")
    return Swapped(after, bool(where), f"{differing}, at most {worst:.2g} apart")


def _advantages(step: Step) -> Tensor | None:
    """Return recomputed advantages per token: [N] float64; None if an input is missing."""
    if step.setup.advantage == "gae":
        needs = ("value", "policy_mask", "setup.gamma", "setup.lam", "setup.whiten")
        declared = {"bootstrapped": step.setup.bootstraps is not False, "whiten": step.setup.whiten is True}
        missing = [need for need in needs if not step.has(need)]
        return None if missing else expected_gae(step, trajectories_of(step), **declared)[1]
    if step.setup.advantage == "return":
        return expected_reinforce_advantages(step, trajectories_of(step))[1]
    if step.setup.advantage in GROUP_FORMULAS and step.has("sample.group_id"):
        return expected_group_advantages(step)
    return None


def swap_loss(step: Step) -> Swapped | str:
    """Replace token gradients by the closed form of the declared loss."""
    rule = RULES["MSK007"] if RULES["MSK007"].applies(step) else RULES["MSK003"]
    if not rule.applies(step) or step.missing(rule.needs):
        return "it has no closed form here, or the gradient is not recorded"
    compared = sum(each.other.where.compared for each in msk003.measure(step))  # MSK007 compares the same
    claims = "; ".join(claim.what for claim in rule.judge(step))
    after = changed_step(step, token_gradient=expected_token_gradients(step))
    return Swapped(after, bool(claims), claims or with_count(compared, "token"))


ROUNDING = 1e-3
"""Of the largest advantage: float32 leaves 1e-6."""

SWAPS: Mapping[Part, Swap] = {
    "old": swap_old,
    "mask": swap_mask,
    "advantage": swap_advantage,
    "loss": swap_loss,
}
"""Swaps that need the record alone."""


def lines(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """Yield every line with its style."""
    styles = {"same": "green", "differs": "bold red", "not swapped": "dim"}
    for each in trials:
        gradient = "" if not each.gradient else f"; the gradient changes by {each.gradient:.1%}"
        gradient = "; the gradient was 0 before" if each.gradient == math.inf else gradient
        clears = f"; clears {', '.join(each.clears)}" if each.clears else ""
        yield f"{each.part:<10} {each.state:<12} {each.detail}{gradient}{clears}", styles[each.state]
