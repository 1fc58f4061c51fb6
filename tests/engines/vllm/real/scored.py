"""The comparison of sampled turns with the trainer's scores."""

from truing.engines.vllm.proof.compare_turns import compare_turns

NATS = 1e-4


def uncached():
    raise AssertionError("nothing differs, so nothing is asked again")


def compare_scores(policy, requests, turns, params):
    """Raise unless the trainer gives the turns the same log-probabilities."""
    pairs = list(zip(requests, turns, strict=True))
    return compare_turns(policy, pairs, params, NATS, uncached, NATS)
