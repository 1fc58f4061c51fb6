"""StabilityGuard: monitors of ratios, rewards, values and the gradient norm."""

from typing import Any

from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage
from truing.faults.peers.tokens import rows_of, scored
from truing.record import SampleRow


def feed(run: RecordedStage) -> list[dict[str, Any]]:
    """Return the input of each of its monitors for each update; without a critic there are no values."""
    return [
        {
            "new": _stream(rows, [each.new_logprob for each in rows]),
            "old": _stream(rows, [each.sample.old_logprob for each in rows]),
            "values": _stream(rows, [each.sample.value for each in rows]),
            "returns": _stream(rows, [each.sample.returns for each in rows]),
            "advantages": _stream(rows, [each.sample.advantage for each in rows]),
            "rewards": update.rewards,
            "grad_norm": update.step_row.metrics.get("grad/norm"),
        }
        for update in run.updates
        for rows in [rows_of(update)]
    ]


def _stream(rows: list[SampleRow], streams: list[Any]) -> list[float]:
    """Return a stream of all scored tokens of an update, row by row; empty if not recorded."""
    values = [
        value for row, stream in zip(rows, streams, strict=True) for value in stream[scored(row)].tolist()
    ]
    return values if all(value == value for value in values) else []


PEER = Peer(
    "stabilityguard",
    "per update: new and old log-probabilities, rewards, values and returns of PPO, the gradient's norm, each"
    " to its monitor; its KL monitor takes logits of the whole vocabulary, which no run records",
    feed,
    cause_findings=("reward model collapse",),
)
