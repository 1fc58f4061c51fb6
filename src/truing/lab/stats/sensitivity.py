"""What an experiment can see, and whether that is enough to decide."""

import json
import math

from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.noise import Noise
from truing.lab.stats.power import MIN_POWER, min_detectable_excess, power, seeds_needed, within_needed
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header
from truing.lab.verdicts.criteria import Within


def min_detectable_effect(header: Header, noise: Noise, error: float, within: Within) -> float:
    """The minimum detectable effect: what the pairs tell apart, beyond the bound that is to be passed.

    NaN where nobody knows the noise yet, ∞ with too few pairs.
    """
    seen = _confirm_bound(header) + _min_detectable_excess(
        header, noise, error_per_arm(header, error), within
    )
    return seen if math.isnan(seen) else max(0.0, seen)


def power_at_smallest_effect(header: Header, noise: Noise, error: float, within: Within) -> float:
    """The power at the smallest effect that matters; where nobody knows the noise, as if it were enough."""
    if math.isnan(noise.deviation):
        return MIN_POWER
    share, known = error_per_arm(header, error), within.get(header.metric)
    effect, bound = header.smallest_effect, _confirm_bound(header)
    return power(effect, noise.deviation, header.seeds, share, bound=bound, within=known)


def why_underpowered(header: Header, noise: Noise, error: float, within: Within) -> tuple[str, str]:
    """Why an experiment cannot decide, and what would; two empty texts where it can."""
    error, bound, known = error_per_arm(header, error), _confirm_bound(header), within.get(header.metric)
    needed = min_pairs(error, known)
    if header.seeds < needed:
        refused = f"{header.seeds} pairs prove nothing at an error of {error:.2g}, however clear they are"
        return refused, f"seeds = {needed} or more"
    beyond = header.smallest_effect - bound
    if beyond <= 0:
        refused = f"an effect of {header.smallest_effect:g} is never proven to be beyond a bound of {bound:g}"
        return refused, "a bound in confirm that is below smallest_effect, such as 0"
    seen = _min_detectable_excess(header, noise, error, within)
    if math.isnan(seen) or seen <= beyond:
        return "", ""
    sees = f"{bound + seen:.2g} or more" if math.isfinite(seen) else "nothing, however large"
    supposed = "" if known is None else f"; pairs within ±{known:g}"
    told = f"with {header.seeds} pairs it sees {sees} ({noise.source}{supposed})"
    would = ", or ".join(_remedies(header, noise, error, beyond, seen, known))
    return f"{told}, and {header.smallest_effect:g} is what matters", would


def _min_detectable_excess(header: Header, noise: Noise, error: float, within: Within) -> float:
    known = within.get(header.metric)
    return min_detectable_excess(
        noise.deviation, header.seeds, error, bound=_confirm_bound(header), within=known
    )


def _remedies(
    header: Header, noise: Noise, error: float, beyond: float, seen: float, within: float | None
) -> list[str]:
    """What would make it decide."""
    bound, effect = _confirm_bound(header), header.smallest_effect
    seeds = seeds_needed(effect, noise.deviation, error, bound=bound, within=within)
    more = [f"seeds = {seeds}"] if seeds else []
    if within is not None:
        near = within_needed(effect, noise.deviation, header.seeds, error, bound=bound, within=within)
        known = f"{{ {json.dumps(header.metric)} = {_round_down(near):g} }}" if not math.isnan(near) else ""
        more += [f"within = {known} where no pair differs by more"] if known else []
    elif not noise.measured:
        factor = math.ceil((seen / beyond) ** 2)
        evaluated = (
            "evaluation tasks (eval.tasks), or answers to each (eval.samples, eval.temperature above 0)"
        )
        more.append(
            f"{factor} × the {evaluated if EVALUATION_METRIC.fullmatch(header.metric) else 'prompts'}"
        )
    return [*more, f"smallest_effect = {_round_up(bound + seen):g}"] if math.isfinite(seen) else more


def _confirm_bound(header: Header) -> float:
    """How far beyond nothing the effect must be proven to lie, on the side that confirms."""
    own = [each for each in header.confirm if each.metric == header.metric]
    return max((each.bound if each.above is not None else -each.bound for each in own), default=0.0)


def error_per_arm(header: Header, error: float) -> float:
    """Arms of which any may confirm share the error."""
    shared = any(each.arm is None for each in header.confirm)
    return error / len(header.arms) if shared and header.arms else error


def _round_up(value: float) -> float:
    """Two digits, never less."""
    unit = 10 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit) * unit, 10)


def _round_down(value: float) -> float:
    """Two digits, never more."""
    unit = 10 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / unit) * unit, 10)
