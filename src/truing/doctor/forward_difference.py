"""The difference of recorded log-probabilities from a plain forward, and its bound by rounding."""

from collections.abc import Mapping
from typing import NamedTuple

from truing.doctor import rounding_tolerance as float32
from truing.doctor.evidence import Step
from truing.doctor.route_difference import are_routes_wrong

MIN_DIFFERENCE, NULL_MULTIPLES = 2e-3, 20
"""Nats from a plain forward in float32, and multiples of the normal difference."""

MEAN_MULTIPLES = 4
"""Multiples of the mean change by random rounding, in another precision than float32."""

UNKNOWN_NULL = 1.0
"""Nats, without a measured normal difference: in bfloat16 a token among thousands is 0.6 off."""

STREAMS = ("trainer", "alone", "sampler", "support", "reference", "old", "itself")
"""Compared streams: the trainer, also one sample at a time; the sampler, and the ids that it recorded as
possible, as nats that would explain them; the reference, with a plain forward of its own; old
log-probabilities of a first optimizer step; a plain forward with tokens appended."""

ROUNDINGS = ("rounding", "reference_rounding", "sampler_rounding")

OF_SAMPLER = ("sampler", "support")


class ForwardDifference(NamedTuple):
    """The difference of each compared stream from a plain forward, nats."""

    tokens: int
    largest: Mapping[str, float]
    mean: Mapping[str, float]  # over tokens, not in float32; of ``rounding`` too
    median: Mapping[str, float]  # over tokens
    rounding: Mapping[str, float]  # largest change by random rounding, of policy and reference
    null: float | None  # in float32: the trainer from itself, or the plain forward
    rounding_null: float | None  # in float32: a plain forward from itself under random rounding
    engine: tuple[float, float]  # tolerance of the sampler's engine for a token, and for the median
    device: str
    noisy: bool  # whether the trainer's forward is random: then rounding includes its noise
    other_routes: bool  # whether the plain forward takes other experts than the sampler, by a wrong record
    engine_unknown: bool  # whether another engine samples, in a precision that is not known
    on_policy: bool  # whether the first optimizer step has the sampler's weights by declaration
    row: int | None  # of the token with the largest difference of the requested stream
    token: int

    def differs(self, stream: str) -> bool:
        """Return whether the stream was compared, and differs by more than rounding."""
        if stream not in self.largest:
            return False
        far, rounding = self.largest[stream], self._rounding(stream)
        if rounding not in self.rounding:
            return far > self._bound(stream) or self._most_off(stream)
        if self.tokens < float32.FEW:
            return False
        often = self.mean.get(stream, 0.0) > max(MIN_DIFFERENCE, MEAN_MULTIPLES * self.mean[rounding])
        return often or far > max(MIN_DIFFERENCE, NULL_MULTIPLES * self.rounding[rounding])

    def agrees(self, stream: str) -> bool:
        """Return whether the stream was compared, and differs by rounding alone."""
        return stream in self.largest and not self.differs(stream)

    def is_certain(self, stream: str) -> bool:
        """Return whether a difference is proof: measured in float32; in another precision, of most tokens.

        With a router, rounding may move a few tokens by as much as any fault. Along wrong routes a plain
        forward is not the policy's, but the reference has none on record.
        """
        if (self.other_routes and stream != "reference") or (self.engine_unknown and stream in OF_SAMPLER):
            return False
        if (rounding := self._rounding(stream)) in self.rounding:
            least = float32.proof_multiples(self.device) * self.mean[rounding]
            return self.median.get(stream, 0.0) > max(MIN_DIFFERENCE, least) and not self.noisy
        return self.null is not None and float32.computes_in_float32(self.device)

    def _most_off(self, stream: str) -> bool:
        """Return whether in float32 the median exceeds rounding."""
        typical = None if stream == "itself" else self._typical(stream)
        return typical is not None and self.median.get(stream, 0.0) > typical

    def _typical(self, stream: str) -> float | None:
        """Return the tolerance of the median in float32; None without a measurement."""
        typical = float32.typical(self.rounding_null, self.tokens)
        return max(typical, self.engine[1]) if typical is not None and stream in OF_SAMPLER else typical

    def expected_text(self, stream: str) -> str:
        """Return the expectation as text."""
        if (rounding := self._rounding(stream)) in self.rounding:
            precision = "the sampler's precision" if rounding == "sampler_rounding" else self.device
            return (
                f"within rounding in {precision}: at most {self.rounding[rounding]:.2g} and"
                f" {self.mean[rounding]:.2g} on average, not {self.mean.get(stream, 0.0):.2g}"
            )
        if self._most_off(stream):
            return f"a median within {self._typical(stream):.2g}, not {self.median[stream]:.2g}"
        return f"within {self._bound(stream):.2g}"

    def _bound(self, stream: str) -> float:
        """Return the tolerance in float32."""
        if stream == "itself":
            return MIN_DIFFERENCE
        tolerance = float32.tolerance(self.rounding_null, self.null, MIN_DIFFERENCE, self.tokens)
        bound = UNKNOWN_NULL if tolerance is None else tolerance
        return max(bound, self.engine[0]) if stream in OF_SAMPLER else bound

    def _rounding(self, stream: str) -> str:
        """Return the name of the rounding of a stream: the sampler may compute in a precision of its own."""
        own = "sampler_rounding"
        if stream == "sampler" and own in self.rounding:
            return own
        return "reference_rounding" if stream == "reference" else "rounding"


def forward_difference(step: Step, stream: str) -> ForwardDifference:
    """Return the comparison recorded with the step, and the largest difference of ``stream``."""
    plain = step.facts["plain"]
    sample, token = (plain.get("where") or {}).get(stream, ("", 0))
    row = step.row_of(sample)
    device = plain.get("device", "cpu")
    # in another precision a plain forward may be equal in two shapes, and still differ in a batch
    itself = plain.get("itself") if float32.computes_in_float32(device) else None
    return ForwardDifference(
        plain.get("tokens", 0),
        {name: plain[name] for name in STREAMS if name in plain},
        plain.get("mean", {}),
        plain.get("median", {}),
        {name: plain[name] for name in ROUNDINGS if name in plain},
        step.facts.get("null", {}).get("logprob", itself),
        float32.measured_rounding(step.facts),
        float32.engine_tolerance(step.facts),
        device,
        plain.get("noisy", False),
        are_routes_wrong(step),
        plain.get("engine") == "unknown",
        step.setup.on_policy is not False,
        row,
        int(token),
    )
