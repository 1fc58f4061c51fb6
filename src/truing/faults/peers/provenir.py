"""provenir's flight recorder: eight detectors over a stream of updates."""

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
"""The fields of a step in its recorder."""


def feed(run: RecordedStage) -> list[Curve]:
    """Return a step of its recorder per update; missing fields count as 0 there."""
    return renamed(curves(run), NAMES)


PEER = Peer(
    "provenir",
    "each update as a step of `FlightRecorder`, with every field; its anomalies",
    feed,
    cause_findings=("reward_spike",),
)
