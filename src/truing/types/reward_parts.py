"""The parts of a reward by which policies and demonstrations are judged."""

from collections.abc import Collection, Mapping


def main_parts(weights: Mapping[str, float], shaping: Collection[str]) -> tuple[str, ...]:
    """Return the names of the parts with the largest weight above 0, without those that only shape."""
    judged = {name: weight for name, weight in weights.items() if weight > 0 and name not in shaping}
    return tuple(name for name, weight in judged.items() if weight == max(judged.values()))
