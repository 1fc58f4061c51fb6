"""Recorded expert routes compared with the trainer's: what differs, and whether that is proof.

A forward along other experts than the sampler's differs from it, and so does its gradient. Rules about the
sampler, its draws and the gradient prove nothing of such samples.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.rounding_tolerance import computes_in_float32

FEW, ENOUGH = 8, 32
"""The fewest sets of experts for a claim, and for proof in another precision than float32."""

MANY, BETTER = 0.5, 0.25
"""Share of sets that differ, and the part of it that may remain if the record is placed otherwise."""

EXACT_SCORES, COARSE_SCORES, FAR_SCORES = 1e-3, 0.1, 0.25
"""Relative difference of scores that rounding explains in float32, and in another precision; and proof there,
where the router's formula is known up to 0.05."""

PLACES = {
    "before": "each token has the routes of the token before it",
    "after": "each token has the routes of the token after it",
    "other": "samples have the routes of other samples",
}


class RouteDifference(NamedTuple):
    """Shares of sets of experts that differ from the record."""

    record: Mapping[str, float]  # of the trainer's own selection, by place
    replay: Mapping[str, float]  # of what the trainer takes along the record, by place
    scores: float  # largest relative difference of scores along the record from the router's formula
    rounding: float  # of the trainer's own selection under random rounding
    device: str

    @property
    def are_not_replayed(self) -> bool:
        """Return whether the trainer takes other experts than the recorded ones."""
        return self.replay["sets"] >= FEW and self.replay["here"] > 0

    @property
    def have_other_scores(self) -> bool:
        """Return whether scores along the record are not the router's."""
        return self.scores > (EXACT_SCORES if computes_in_float32(self.device) else COARSE_SCORES)

    @property
    def are_of_other_tokens(self) -> bool:
        """Return whether most recorded sets are not those that the trainer would select."""
        return self.record["sets"] >= FEW and self.record["here"] > max(MANY, 2 * self.rounding)

    def is_certain(self, shares: Mapping[str, float]) -> bool:
        """Return whether sets of experts are proof: not of a few tokens where rounding decides."""
        return computes_in_float32(self.device) or shares["sets"] >= ENOUGH

    def are_scores_certain(self) -> bool:
        """Return whether a difference of scores is proof."""
        return computes_in_float32(self.device) or self.scores > FAR_SCORES


def route_difference(step: Step) -> RouteDifference:
    """Return the comparison recorded with the step, which has routes on record."""
    return _recorded(step.facts["routes"])


def _recorded(routes: Mapping[str, Any]) -> RouteDifference:
    return RouteDifference(
        routes["record"], routes["replay"], routes["scores"], routes["rounding"], routes["device"]
    )


def better_place(shares: Mapping[str, float]) -> str:
    """Return the place whose record fits; "" if none does."""
    known = {name: shares[name] for name in PLACES if name in shares}
    best = min(known, key=lambda name: known[name])
    return best if known[best] <= BETTER * shares["here"] else ""


def are_routes_wrong(step: Step) -> bool:
    """Return whether the stage's last check of routes explains that forwards, draws or gradients differ."""
    facts = [*(past.facts for past in step.past_of_stage), step.facts]
    checked = [each["routes"] for each in facts if "record" in each.get("routes", {})]
    if not checked:
        return False
    routes = _recorded(checked[-1])
    return routes.are_not_replayed or routes.have_other_scores or routes.are_of_other_tokens
