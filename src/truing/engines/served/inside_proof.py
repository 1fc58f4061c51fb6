"""What the layers of an engine say together: a verdict, and what it stands on."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from truing.engines.served.causes import between
from truing.engines.served.layers import Judged
from truing.engines.served.use import PROMPTS, Computed
from truing.engines.served.verdict import Share, place

SHOWN = 3
"""Layers that a line names."""

HARDLY = 0.5
"""Share of a change: where the engine's dtype keeps less, that is said."""

Said = Literal["served", "other", "scaled", "layers", "cannot tell"]


@dataclass(frozen=True)
class InsideProof:
    """What an engine was seen to hold."""

    said: Said
    text: str
    model: str
    dtype: str
    layers: int  # that were compared
    readable: int  # of them, whose weights are plain matrices
    hidden: int  # in which rounding hides which candidate it is
    adapter: bool  # whether the engine has an adapter loaded
    causes: Mapping[str, Sequence[str]]  # the layers that differ, by why
    shares: Mapping[str, Share]  # of all layers, by candidate
    defaults: Mapping[str, Any]  # of sampling parameters
    logprobs_mode: str
    missing: Sequence[str] = ()  # layers of which the engine said nothing
    surviving: Mapping[str, float] = field(default_factory=dict[str, float])
    """Share of the change from a candidate that the engine's dtype keeps."""
    prefix_cache: str = ""  # "" if nothing was found
    faults: Sequence[str] = ()  # what is wrong besides the layers
    computed: Computed | None = None  # None: not compared
    later: int = 0  # layers that a later proof compares
    depth: Literal["inside"] = field(default="inside", init=False)

    @property
    def wrong(self) -> bool:
        """Whether it is shown that the engine does not sample with the expected weights alone."""
        return self.said in ("other", "scaled", "layers") or bool(self.faults)

    @property
    def lines(self) -> list[str]:
        """What the verdict stands on."""
        return list(_lines(self))

    @property
    def unseen(self) -> list[str]:
        """What was not looked at."""
        short = self.computed and not math.isnan(self.computed.difference)
        after = "after longer prompts" if short else "with these weights (attention, positions)"
        said = [
            f"what it computes {after}, temperature, template (a proof from outside looks at it)",
            "whether other requests name the adapter" if self.adapter else "",
            "" if self.prefix_cache else "its prefix cache",
            "" if self.shares else "whether other weights fit as well: no base or version before differs",
            f"{self.later} layers, whose turn comes in later proofs" if self.later else "",
            f"{len(self.missing)} layers without an answer: {_some(self.missing)}" if self.missing else "",
        ]
        return [each for each in said if each]


def verdict(judged: Sequence[Judged], whole: Mapping[str, Share]) -> tuple[Said, str]:
    """Return what the layers say together, and a sentence.

    Args:
        judged: the layers.
        whole: λ of all layers, by each candidate that differs from the expected weights.
    """
    layers = len({each.layer.name for each in judged})
    wrong = [each for each in judged if each.is_wrong]
    told = [each for each in judged if each.is_wrong or each.state == "expected"]
    if not layers:
        return "cannot tell", "its layers have other names than those of the expected weights"
    if not wrong:
        unclear = [name for name, share in whole.items() if place(share) == "not told"]
        if unclear:
            names = " or ".join(unclear)
            return (
                "cannot tell",
                f"it may hold the expected weights, or {names}: rounding hides the difference",
            )
        if hidden := len(hidden_layers(judged)):
            told = f"it holds the expected weights in {layers - hidden} layers"
            return "served", f"{told}; in {hidden} others the engine's rounding hides the change"
        return "served", f"it holds the expected weights, in all {layers} layers"
    number = len({each.layer.name for each in wrong})
    if wrong == told:
        names = {each.other for each in wrong}
        if all(each.state == "other" for each in wrong) and len(names) == 1:
            return "other", f"it holds {wrong[0].other}, in all {number} layers that differ"
        share = whole[wrong[0].other].of_change if wrong[0].other else 1.0
        if len(names) == 1 and all(each.state == "between" and each.has(share) for each in wrong):
            return "scaled", f"in all {number} layers that differ {between(wrong[0].other, share)}"
    return "layers", f"it holds other weights than the expected ones in {number} of {layers} layers"


def hidden_layers(judged: Sequence[Judged]) -> set[str]:
    """Return the layers of which no comparison tells whose weights they have."""
    told = {each.layer.name for each in judged if each.state != "hidden"}
    return {each.layer.name for each in judged} - told


def _lines(proof: InsideProof) -> Iterator[str]:
    """Yield what a verdict stands on."""
    for cause, layers in proof.causes.items():
        yield f"{len(layers)} of {proof.layers} layers: {cause}: {_some(layers)}"
    for name, share in proof.shares.items():
        yield (
            f"from {name} (0) to the expected weights (1) the engine is at {share.of_change:.3f}"
            f" ± {share.error:.3f}, over all layers"
        )
    for name, kept in proof.surviving.items():
        lost = ": the engine hardly samples with the change" if kept < HARDLY else ""
        still = f"{kept:.1%} still do in {proof.dtype}{lost}"
        yield (
            f"no element differs from {name}"
            if math.isnan(kept)
            else f"of the elements that differ from {name}, {still}"
        )
    read = (
        f"{proof.readable} of them read as they are"
        if proof.readable
        else "none of them can be read as it is"
    )
    yield f"{proof.layers} layers, computed with through the engine's kernels; {read}"
    if proof.prefix_cache and proof.prefix_cache not in proof.faults:
        yield proof.prefix_cache
    if (found := proof.computed) and found.difference <= found.allowed:
        yield f"after {PROMPTS} prompts its log-probabilities are theirs, to {found.difference:.1g} nats"
    if proof.defaults:
        set_ = ", ".join(f"{name} {value:g}" for name, value in proof.defaults.items())
        yield f"requests that do not say otherwise are sampled with {set_} (generation_config)"
    if proof.logprobs_mode != "raw_logprobs":
        yield f"its log-probabilities are {proof.logprobs_mode}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
