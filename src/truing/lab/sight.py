"""What an experiment can see, and whether that is enough to decide."""

import math

from truing.lab.betting import fewest
from truing.lab.header import EVALUATED, Header
from truing.lab.noise import Noise
from truing.lab.power import ENOUGH, detectable, power, seeds_needed


def smallest_seen(header: Header, noise: Noise, error: float) -> float:
    """The minimum detectable effect: what the pairs tell apart, beyond the bound that is to be passed.

    NaN where nobody knows the noise yet, ∞ with too few pairs.
    """
    seen = _bound(header) + detectable(noise.deviation, header.seeds, error_of_an_arm(header, error))
    return seen if math.isnan(seen) else max(0.0, seen)


def chance_to_see(header: Header, noise: Noise, error: float) -> float:
    """The power at the smallest effect that matters; where nobody knows the noise, as if it were enough."""
    if math.isnan(noise.deviation):
        return ENOUGH
    beyond = header.smallest_effect - _bound(header)
    return power(beyond, noise.deviation, header.seeds, error_of_an_arm(header, error))


def decides(header: Header, noise: Noise, error: float) -> tuple[str, str]:
    """Why an experiment cannot decide, and what would; two empty texts where it can."""
    error, bound = error_of_an_arm(header, error), _bound(header)
    needed = fewest(error)
    if header.seeds < needed:
        refused = f"{header.seeds} pairs prove nothing at an error of {error:.2g}, however clear they are"
        return refused, f"seeds = {needed} or more"
    beyond = header.smallest_effect - bound
    if beyond <= 0:
        refused = f"an effect of {header.smallest_effect:g} is never proven to be beyond a bound of {bound:g}"
        return refused, "a bound in confirm that is below smallest_effect, such as 0"
    seen = detectable(noise.deviation, header.seeds, error)
    if math.isnan(seen) or seen <= beyond:
        return "", ""
    told = f"with {header.seeds} pairs it sees {bound + seen:.2g} or more ({noise.source})"
    return f"{told}, and {header.smallest_effect:g} is what matters", ", or ".join(
        _would(header, noise, error, beyond, seen)
    )


def _would(header: Header, noise: Noise, error: float, beyond: float, seen: float) -> list[str]:
    """What would make it decide."""
    seeds = seeds_needed(beyond, noise.deviation, error)
    more = [f"seeds = {seeds}"] if seeds else []
    if not noise.measured:
        factor = math.ceil((seen / beyond) ** 2)
        evaluated = (
            "evaluation tasks (eval.tasks), or answers to each (eval.samples, eval.temperature above 0)"
        )
        more.append(f"{factor} × the {evaluated if EVALUATED.fullmatch(header.metric) else 'prompts'}")
    return [*more, f"smallest_effect = {_upward(_bound(header) + seen):g}"]


def _bound(header: Header) -> float:
    """How far beyond nothing the effect must be proven to lie, on the side that confirms."""
    own = [each for each in header.confirm if each.metric == header.metric]
    return max((each.bound if each.above is not None else -each.bound for each in own), default=0.0)


def error_of_an_arm(header: Header, error: float) -> float:
    """Arms of which any may confirm share the error."""
    shared = any(each.arm is None for each in header.confirm)
    return error / len(header.arms) if shared and header.arms else error


def _upward(value: float) -> float:
    """Two digits, never less."""
    unit = 10 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit) * unit, 10)
