"""How far what was said of tokens is from a plain forward of them, and what rounding explains of it."""

from collections.abc import Mapping
from typing import NamedTuple

from truing.doctor import rounding_tolerance as float32
from truing.doctor.evidence import Step

MIN_DIFFERENCE, NULL_MULTIPLES = 2e-3, 20
"""Nats from a plain forward in float32, and multiples of what is normal."""

MEAN_MULTIPLES = 4
"""Multiples of what rounding at random changes on average, in another precision than float32."""

UNKNOWN_NULL = 1.0
"""Nats, where nobody measured what is normal: in bfloat16 a token among thousands is 0.6 off."""

STREAMS = ("trainer", "alone", "sampler", "reference", "old", "itself")
"""What is compared: the trainer, also one row at a time; the sampler; the reference, with a plain forward of
its own; what an update before it moves anything is compared with; a plain forward with tokens behind."""


class ForwardDifference(NamedTuple):
    """How far each stream is from a plain forward, nats; what was not compared is left out."""

    tokens: int
    largest: Mapping[str, float]
    mean: Mapping[str, float]  # over tokens, where it was not in float32; of ``rounding`` too
    median: Mapping[str, float]  # over tokens
    rounding: Mapping[str, float]  # the largest that rounding at random changes, of the policy and reference
    null: float | None  # in float32: the trainer from itself, or the plain forward
    shape_null: float | None  # in float32: a plain forward from itself in another shape
    device: str
    noisy: bool  # whether the trainer's forward is a draw: then rounding is with its noise
    on_policy: bool  # whether the first update is declared to be by the weights that drew
    row: int | None  # of the token at which the one that is asked for is farthest off
    token: int

    def differs(self, stream: str) -> bool:
        """Whether it was compared, and is farther than rounding explains."""
        if stream not in self.largest:
            return False
        far, rounding = self.largest[stream], _rounding(stream)
        if rounding not in self.rounding:
            return far > self._bound(stream) or self._most_off(stream)
        if self.tokens < float32.FEW:
            return False
        often = self.mean.get(stream, 0.0) > max(MIN_DIFFERENCE, MEAN_MULTIPLES * self.mean[rounding])
        return often or far > max(MIN_DIFFERENCE, NULL_MULTIPLES * self.rounding[rounding])

    def agrees(self, stream: str) -> bool:
        """Whether it was compared, and is as near as rounding explains."""
        return stream in self.largest and not self.differs(stream)

    def is_certain(self, stream: str) -> bool:
        """Whether what is normal was measured on a CPU; in another precision, and most tokens are far off.

        Where a router chooses, rounding may move a few tokens by as much as any fault does.
        """
        if (rounding := _rounding(stream)) in self.rounding:
            most = self.median.get(stream, 0.0) > max(MIN_DIFFERENCE, NULL_MULTIPLES * self.mean[rounding])
            return most and self.device.startswith("cpu") and not self.noisy
        return self.null is not None and self.device == "cpu"

    def _most_off(self, stream: str) -> bool:
        """Whether in float32 most tokens are farther off than rounding puts any number of them."""
        typical = None if stream == "itself" else float32.typical(self.shape_null, self.tokens)
        return typical is not None and self.median.get(stream, 0.0) > typical

    def expected_text(self, stream: str) -> str:
        """What was expected, in words."""
        if (rounding := _rounding(stream)) in self.rounding:
            return (
                f"within what rounding changes in {self.device}: {self.rounding[rounding]:.2g} at most and"
                f" {self.mean[rounding]:.2g} on average, not {self.mean.get(stream, 0.0):.2g}"
            )
        if self._most_off(stream):
            typical = float32.typical(self.shape_null, self.tokens)
            return f"a median within {typical:.2g}, not {self.median[stream]:.2g}"
        return f"within {self._bound(stream):.2g}"

    def _bound(self, stream: str) -> float:
        """What it may differ by in float32; how far a plain forward is from itself is no bound of that."""
        if stream == "itself":
            return MIN_DIFFERENCE
        found = float32.tolerance(self.shape_null, self.null, MIN_DIFFERENCE)
        return UNKNOWN_NULL if found is None else found


def _rounding(stream: str) -> str:
    return "reference_rounding" if stream == "reference" else "rounding"


def forward_difference(step: Step, stream: str) -> ForwardDifference:
    """As it was compared beside the update, and where the stream ``of`` is farthest off."""
    plain = step.facts["plain"]
    sample, token = (plain.get("where") or {}).get(stream, ("", 0))
    row = next((index for index, row in enumerate(step.rows) if row.sample_id == sample), None)
    device = plain.get("device", "cpu")
    # in another precision a plain forward may be the same in two shapes, and still be off in a batch
    itself = plain.get("itself") if device == "cpu" else None
    return ForwardDifference(
        plain.get("tokens", 0),
        {name: plain[name] for name in STREAMS if name in plain},
        plain.get("mean", {}),
        plain.get("median", {}),
        {name: plain[name] for name in ("rounding", "reference_rounding") if name in plain},
        step.facts.get("null", {}).get("logprob", itself),
        float32.measured_rounding(step.facts),
        device,
        plain.get("noisy", False),
        step.setup.on_policy is not False,
        row,
        int(token),
    )
