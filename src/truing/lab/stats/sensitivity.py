"""The smallest effect that an experiment detects, and whether that suffices to decide."""

import json
import math

from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.noise import Noise
from truing.lab.stats.power import min_detectable_excess, seeds_needed, within_needed
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header
from truing.lab.verdicts.criteria import Within


def min_detectable_effect(header: Header, noise: Noise, error: float, within: Within) -> float:
    """Return the minimum detectable effect of the pairs, beyond the bound that confirms.

    NaN if the noise is unknown, ∞ with too few pairs.
    """
    effect = _confirm_bound(header) + _min_detectable_excess(
        header, noise, error_per_arm(header, error), within
    )
    return effect if math.isnan(effect) else max(0.0, effect)


def why_underpowered(header: Header, noise: Noise, error: float, within: Within) -> tuple[str, str]:
    """Return why an experiment cannot decide, and what would help; two empty texts if it can decide."""
    error, bound, limit = (
        error_per_arm(header, error),
        _confirm_bound(header),
        within.get(header.metric),
    )
    fewest = min_pairs(error, limit)
    if header.seeds < fewest:
        reason = f"{header.seeds} pairs prove nothing at an error of {error:.2g}, however large the effect"
        return reason, f"seeds = {fewest} or more"
    beyond = header.smallest_effect - bound
    if beyond <= 0:
        reason = f"an effect of {header.smallest_effect:g} is never proven to be beyond a bound of {bound:g}"
        return reason, "a bound in confirm that is below smallest_effect, such as 0"
    excess = _min_detectable_excess(header, noise, error, within)
    if math.isnan(excess) or excess <= beyond:
        return "", ""
    detects = f"{bound + excess:.2g} or more" if math.isfinite(excess) else "no effect, however large"
    condition = "" if limit is None else f"; pairs within ±{limit:g}"
    text = f"with {header.seeds} pairs it detects {detects} ({noise.source}{condition})"
    remedy = ", or ".join(_remedies(header, noise, error, beyond, excess, limit))
    return f"{text}, and the smallest effect of interest is {header.smallest_effect:g}", remedy


def _min_detectable_excess(header: Header, noise: Noise, error: float, within: Within) -> float:
    max_difference = within.get(header.metric)
    return min_detectable_excess(
        noise.deviation, header.seeds, error, bound=_confirm_bound(header), within=max_difference
    )


def _remedies(
    header: Header, noise: Noise, error: float, beyond: float, excess: float, within: float | None
) -> list[str]:
    """Return changes with which the experiment can decide."""
    bound, effect = _confirm_bound(header), header.smallest_effect
    seeds = seeds_needed(effect, noise.deviation, error, bound=bound, within=within)
    remedies = [f"seeds = {seeds}"] if seeds else []
    if within is not None:
        needed = within_needed(effect, noise.deviation, header.seeds, error, bound=bound, within=within)
        entry = (
            f"{{ {json.dumps(header.metric)} = {_round_down(needed):g} }}" if not math.isnan(needed) else ""
        )
        remedies += [f"within = {entry} where no pair differs by more"] if entry else []
    elif not noise.measured:
        factor = math.ceil((excess / beyond) ** 2)
        evaluation_text = (
            "evaluation tasks (eval.tasks), or answers to each (eval.samples, eval.temperature above 0)"
        )
        remedies.append(
            f"{factor} × the {evaluation_text if EVALUATION_METRIC.fullmatch(header.metric) else 'prompts'}"
        )
    return (
        [*remedies, f"smallest_effect = {_round_up(bound + excess):g}"] if math.isfinite(excess) else remedies
    )


def _confirm_bound(header: Header) -> float:
    """Return the bound that the effect must be proven to exceed, on the side that confirms."""
    criteria = [each for each in header.confirm if each.metric == header.metric]
    return max((each.bound if each.above is not None else -each.bound for each in criteria), default=0.0)


def error_per_arm(header: Header, error: float) -> float:
    """Return the error of one arm; arms share the error if any of them may confirm."""
    shares_error = any(each.arm is None for each in header.confirm)
    return error / len(header.arms) if shares_error and header.arms else error


def _round_up(value: float) -> float:
    """Round up to two digits."""
    unit = 10 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit) * unit, 10)


def _round_down(value: float) -> float:
    """Round down to two digits."""
    unit = 10 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / unit) * unit, 10)
