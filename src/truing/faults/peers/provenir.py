"""provenir's flight recorder: eight detectors that hear of one update after another."""

from truing.faults.peers.curves import Curve, curves, renamed
from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage

NAMES = {
    "kl": "kl_trained/k3",
    "entropy": "entropy",
    "reward_mean": "reward/mean",
    "reward_std": "reward/std",
    "response_length_mean": "length/mean",
    "advantage_std": "advantage/std",
    "grad_norm": "grad/norm",
    "learning_rate": "lr",
}
"""All that a step of its recorder holds."""


def feed(run: RecordedStage) -> list[Curve]:
    """A step of its recorder per update; what is left out is 0 to it."""
    return renamed(curves(run), NAMES)


PEER = Peer(
    "provenir",
    "each update as a step of `FlightRecorder`, with every field that it has; its anomalies",
    feed,
    cause_findings=("reward_spike",),
)
