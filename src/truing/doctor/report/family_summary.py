"""A step by task family: lengths of answers and demonstrations, entropy, and reward distributions."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from truing.doctor.evidence import Step
from truing.doctor.facts.answer_lengths import ByFamily, Lengths, answer_lengths
from truing.utils.format import with_count

MAX_DISTINCT = 4
"""The most values of a reward component with a count each; for more, quantiles are reported."""

QUANTILES = {"least": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "most": 1.0}


def family_lines(step: Step) -> list[tuple[str, str]]:
    """Return lengths and entropy of each task family; demonstrations may be those of an earlier stage."""
    parts: dict[str, list[slice]] = defaultdict(list)
    for _, row, part in step.slices():
        parts[row.family].append(part)
    now = answer_lengths((row.family, step.tokens["origin"][part]) for _, row, part in step.slices())
    demonstrations = demonstration_lengths(step)
    lines = []
    for family, lengths in now.items():
        each = {**demonstrations.get(family, {}), **lengths}
        summary = "; ".join(
            f"{kind} of {each[kind]}" for kind in ("answers", "demonstrations") if kind in each
        )
        lines.append((f"{family}: {summary}; {entropy_text(step, parts[family])}", "LEN001, LEN002"))
    return lines


def demonstration_lengths(step: Step) -> ByFamily:
    """Return the lengths of each family's latest demonstrations, in an earlier step."""
    by_family: dict[str, Mapping[str, Lengths]] = {}
    for past in step.past:
        for family, kinds in past.facts.get("lengths", {}).items():
            if "demonstrations" in kinds:
                by_family[family] = {"demonstrations": Lengths(*kinds["demonstrations"])}
    return by_family


def entropy_text(step: Step, parts: Sequence[slice]) -> str:
    """Return the mean entropy of samples as text; without computed entropy, estimated from their draws."""
    for name, sign, how in (("entropy", 1, ""), ("sampler_logprob", -1, ", estimated from the draws")):
        if name not in step.tokens:
            continue
        values = [x for part in parts for x in step.tokens[name][part].tolist() if not math.isnan(x)]
        if values:
            return f"entropy {abs(sign * math.fsum(values) / len(values)):.3g} nats per token{how}"
    return "entropy was not measured"


def reward_lines(step: Step) -> list[tuple[str, str]]:
    """Return the distribution of each reward component over the rollouts of a step."""
    rollouts = {row.rollout_id: row.reward_parts for row in step.samples}
    values: dict[str, list[float]] = defaultdict(list)
    for parts in rollouts.values():
        for name, value in parts.items():
            values[name].append(value)
    return [
        (f"reward component {name}: {distribution_text(each)}", "RWD002, RWD006")
        for name, each in values.items()
    ]


def distribution_text(values: Sequence[float]) -> str:
    """Return mean and distribution as text: each value with its count if there are few, else quantiles."""
    mean = f"{math.fsum(values) / len(values):.3g} on average over {with_count(len(values), 'rollout')}"
    counts: Counter[Any] = Counter(values)
    if len(counts) <= MAX_DISTINCT:
        return f"{mean}: " + ", ".join(f"{value:g} × {counts[value]}" for value in sorted(counts))
    quantiles = np.quantile(values, list(QUANTILES.values()))
    return f"{mean}: " + ", ".join(f"{name} {x:.3g}" for name, x in zip(QUANTILES, quantiles, strict=True))
