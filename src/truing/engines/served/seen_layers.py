"""What the layers of an engine say beside candidates, all together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from truing.engines.served.causes import Changed, causes
from truing.engines.served.inside_proof import Said, verdict
from truing.engines.served.layers import Judged, Layer, judge, layers_of, whole_share
from truing.engines.served.verdict import Share
from truing.engines.vllm.proof.expected_layers import Expected
from truing.engines.vllm.proof.layer_answers import ProbeAnswer

IDLE = ", and the adapter that is loaded adds zeros: no layer of the engine has its names, or its B is zero"


@dataclass(frozen=True)
class Seen:
    """What the layers of an engine say beside candidates."""

    layers: Sequence[Layer]
    judged: Sequence[Judged]
    shares: Mapping[str, Share]  # of all layers, by candidate that differs
    said: Said
    text: str
    readable: int  # layers whose weights are plain matrices

    @property
    def is_wrong(self) -> bool:
        """Whether a layer has other weights than the expected ones."""
        return any(each.is_wrong for each in self.judged)

    @property
    def compared(self) -> int:
        """The number of layers that were compared."""
        return len({each.layer.name for each in self.judged})

    def causes(
        self, expected: Expected, candidates: Mapping[str, Expected], changed: Changed
    ) -> dict[str, list[str]]:
        """Return the wrong layers, each once, by why."""
        if not self.is_wrong:
            return {}
        why = causes(self.judged, self.shares, expected, candidates, changed)
        return {cause: _names(layers) for cause, layers in why.items()}

    def missing(self, expected: Expected) -> list[str]:
        """Return the layers of the expected weights of which the engine said nothing."""
        names = {*expected.linear} - expected.tied | {*expected.vectors} | {*expected.experts}
        return sorted(names - {layer.name for layer in self.layers})


def see(
    answer: ProbeAnswer,
    expected: Expected,
    candidates: Mapping[str, Expected],
    dtype: torch.dtype,
    was_merged: bool,
) -> Seen:
    """Compare an engine's answer with candidates.

    Args:
        answer: of all workers.
        expected: the responses of the weights that it should have.
        candidates: those of other weights, by what they are.
        dtype: of the engine.
        was_merged: whether the candidates' adapters are added to their weights.
    """
    layers = [*layers_of(answer, dtype, was_merged), *_lost_adapters(answer, expected)]
    judged = [each for layer in layers if (each := judge(layer, expected, candidates))]
    wholes = {name: whole_share(layers, expected, each) for name, each in candidates.items()}
    shares = {name: share for name, (share, count) in wholes.items() if count}
    said, text = verdict(judged, shares)
    added = (answer.delta | answer.foreign).values()
    if said == "other" and added and not any(each.any() for each in added):
        text += IDLE
    return Seen(layers, judged, shares, said, text, len(answer.held))


def _lost_adapters(answer: ProbeAnswer, expected: Expected) -> Iterator[Layer]:
    """Yield the layers that an engine with an adapter leaves without one: they add zeros."""
    adapted = [layer for layer in layers_of(answer, torch.float32, False) if layer.kind == "adapter"]
    for name, (response, _) in expected.delta.items() if adapted else ():
        if name not in answer.delta:
            yield replace(adapted[0], name=name, values=torch.zeros_like(response))


def _names(layers: Sequence[Layer]) -> list[str]:
    """Return each layer once, by what was seen of it first."""
    return list({layer.name: layer.words for layer in reversed(layers)}.values())[::-1]
