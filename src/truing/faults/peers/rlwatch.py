"""rlwatch: seven detectors over a stream of updates."""

from truing.faults.peers.curves import Curve, curves, renamed
from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage

NAMES = {
    "entropy": "entropy",
    "kl_divergence": "kl_trained/k3",
    "reward_mean": "reward/mean",
    "reward_std": "reward/std",
    "advantage_std": "advantage/std",
    "loss": "loss/total",
    "learning_rate": "lr",
    "clip_fraction": "clip/clipped_share",
    "grad_norm": "grad/norm",
}
"""The numbers that its callback for TRL passes on."""


def feed(run: RecordedStage) -> list[Curve]:
    """Return its callback's input for each update."""
    return renamed(curves(run), NAMES)


PEER = Peer(
    "rlwatch",
    "each update by `log_step`, with the numbers that its TRL callback passes on; the alerts that it sends",
    feed,
    cause_findings=("reward_hacking",),
)
