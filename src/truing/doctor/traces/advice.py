"""Which field would let most further rules run on a trace."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from truing.doctor.diagnosis import Diagnosis
from truing.doctor.rule_inputs import INPUTS
from truing.doctor.verdict import Verdict

FIELDS: Mapping[str, str] = {
    "origin": "origins from the sampler or from roles (`sampled`, `origin`)",
    "sampled": "origins from the sampler or from roles (`sampled`, `origin`)",
    "sampler_logprob": "`sampler_logprob`",
    "old_logprob": "`old_logprob`",
    "ref_logprob": "`ref_logprob`",
    "advantage": "`advantage`",
    "new_logprob": "forwards and their gradients (`step.forward`)",
    "token_gradient": "forwards and their gradients (`step.forward`)",
    "entropy": "forwards and their gradients (`step.forward`)",
    "sample.reward": "`reward`",
    "sample.reward_parts": "`reward_parts`",
    "sample.group_id": "`group_id`",
    "sample.text": "`text`",
    "sample.turns": "origins from the sampler or from roles (`sampled`, `origin`)",
}
"""The field of a trace that gives an input; a setting is given by the setup, a metric by `numbers`."""


def field_of(need: str) -> str | None:
    """Return what gives an input of rules; None if no trace can."""
    if need.startswith("setup."):
        return "a setup"
    if need.startswith("metrics."):
        return "`numbers`"
    return FIELDS.get(need)


def advice(diagnosis: Diagnosis, most: int = 3) -> Iterator[str]:
    """Yield one line with the fields that would add most rules, if any would."""
    fields = {text: field_of(need.partition(" | ")[0]) for need, text in INPUTS.items()}
    adds: dict[str, list[str]] = defaultdict(list)
    for each in diagnosis.results():
        if each.verdict is not Verdict.NOT_CHECKED:
            continue
        needed = {fields.get(text) for text in each.missing}
        if len(needed) == 1 and (field := needed.pop()):
            adds[field].append(each.code)
    ordered = sorted(adds.items(), key=lambda item: -len(item[1]))[:most]
    if ordered:
        named = "; ".join(f"{field} +{len(codes)} ({', '.join(codes)})" for field, codes in ordered)
        yield f"more rules with: {named}"
