"""Episodes of verifiers v1 as rows: a row is a branch of a trace, from the root of its messages to a leaf.

``verifiers/v1/graph.py`` and ``trace.py`` say what a node has: the ids that a message adds, which of them the
policy sampled, and numbers for those alone. A field that is None is left out of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field, Strict
from torch import Tensor

from truing.doctor.traces.step_file import AnyNumber
from truing.errors import RecordError
from truing.types.token import Origin
from truing.types.values import Count, Flag, Integer, Text

Ids = list[Annotated[int, Strict(), Field(ge=0, lt=2**31)]]

Numbers = list[AnyNumber | None]
"""None is a number that is not finite."""


class _Message(BaseModel):
    role: Text


class _Node(BaseModel):
    parent: Count | None = None
    message: _Message
    sampled: Flag = False
    token_ids: Ids = []
    mask: list[Flag] = []
    is_content: list[Flag] = []
    logprobs: Numbers = []
    advantages: Numbers | None = None
    reference_logprobs: Numbers | None = None
    loss_weights: dict[str, Numbers] | None = None


class _Reward(BaseModel):
    score: AnyNumber
    weight: AnyNumber = 1.0


class _Call(BaseModel):
    node: Count | None = None
    finish_reason: Text | None = None


class _Trace(BaseModel):
    id: Text
    nodes: list[_Node]
    calls: list[_Call] = []
    rewards: dict[str, _Reward | None] = {}


class _Group(BaseModel):
    id: Text


class _Policy(BaseModel):
    start: Integer


class _Work(BaseModel):
    policy: _Policy | None = None


class _Run(BaseModel):
    work: _Work | None = None


class Episode(BaseModel):
    """A line of the file; a trace in it is a rollout."""

    id: Text
    group: _Group | None = None
    run: _Run | None = None
    traces: list[_Trace] = []

    @property
    def version(self) -> int:
        """The weights that began to sample it; 0 if they are not known."""
        policy = self.run.work.policy if self.run and self.run.work else None
        return policy.start if policy else 0


KNOWN = {*Episode.model_fields, *_Trace.model_fields, *_Node.model_fields}
"""Keys of episodes, traces and nodes that are read."""


@dataclass(frozen=True, eq=False)
class Row:
    """A branch with tokens that were sampled."""

    sample_id: str
    episode: Episode
    trace: _Trace
    finish_reason: str
    streams: dict[str, Tensor]

    @property
    def reward(self) -> float:
        """The weighted sum of the trace's rewards; NaN if none was computed."""
        known = [each for each in self.trace.rewards.values() if each is not None]
        return sum(each.score * each.weight for each in known) if known else torch.nan


def rows_of(episode: Episode, where: str) -> Iterator[Row]:
    """Yield the rows of an episode; a sampled message of several branches trains in the first of them."""
    for trace in episode.traces:
        place = f"{where}, trace {trace.id}"
        trained = set[int]()
        for number, path in enumerate(_paths(trace.nodes, place)):
            streams = _joined(
                [_streams(trace.nodes[n], f"{place}, node {n}", n not in trained) for n in path]
            )
            trained.update(n for n in path if any(trace.nodes[n].mask))
            if streams["loss_mask"].any():
                reasons = {call.node: call.finish_reason for call in trace.calls}
                last = [n for n in path if trace.nodes[n].sampled][-1:]
                reason = reasons.get(last[0]) if last else None
                yield Row(f"{trace.id}#{number}", episode, trace, reason or "", streams)


def unread(episodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of episodes, traces and nodes that nothing is made of."""
    keys = {key for episode in episodes for key in episode}
    for trace in (trace for episode in episodes for trace in episode.get("traces", ())):
        keys.update(trace, *trace["nodes"])
    return sorted(keys - KNOWN)


def _paths(nodes: Sequence[_Node], where: str) -> list[list[int]]:
    """Return the numbers of the nodes of each branch, in the order of its leaves."""
    for number, node in enumerate(nodes):
        if node.parent is not None and node.parent >= number:
            raise RecordError(
                f"{where}, node {number}: parent is wrong", got=node.parent, expected="an earlier node"
            )
    parents = {node.parent for node in nodes}
    paths = []
    for leaf in (n for n in range(len(nodes)) if n not in parents):
        path, at = list[int](), leaf
        while at is not None:
            path.append(at)
            at = nodes[at].parent
        paths.append(path[::-1])
    return paths


def _streams(node: _Node, where: str, trains: bool) -> dict[str, Tensor]:
    """Return the streams of a node's tokens."""
    length, sampled = len(node.token_ids), sum(node.mask)
    weights = (node.loss_weights or {}).get("rl")
    lengths = {"mask": (len(node.mask), length), "is_content": (len(node.is_content) or length, length)}
    lengths["loss_weights.rl"] = (length if weights is None else len(weights), length)
    for name in ("logprobs", "advantages", "reference_logprobs"):
        lengths[name] = (len(getattr(node, name) or ()) or sampled, sampled)
    for name, (got, expected) in lengths.items():
        if got != expected:
            raise RecordError(f"{where}: {name} has another length", got=got, expected=expected)
    mask = torch.tensor(node.mask, dtype=torch.bool)
    numbers = {
        "sampler_logprob": node.logprobs,
        "advantage": node.advantages,
        "ref_logprob": node.reference_logprobs,
    }
    trained = mask if weights is None else mask & (tensor_of(weights) != 0)
    return {
        "token_ids": torch.tensor(node.token_ids, dtype=torch.int64),
        "origin": _origin(node, mask),
        "loss_mask": trained & torch.tensor(trains),
        **{name: _spread(mask, values) for name, values in numbers.items()},
    }


def _origin(node: _Node, mask: Tensor) -> Tensor:
    """Return origins as if the node came after the prompt: only a sampled message has SAMPLED tokens."""
    origin = torch.full(mask.shape, Origin.TEMPLATE if node.sampled else Origin.TOOL, dtype=torch.uint8)
    if node.is_content and not node.sampled:
        origin[~torch.tensor(node.is_content)] = Origin.TEMPLATE
    if node.sampled:
        origin[mask] = Origin.SAMPLED
    return origin


def _joined(nodes: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the streams of a branch; all before the first sampled token is the prompt."""
    streams = {name: torch.cat([node[name] for node in nodes]) for name in nodes[0]}
    before = (streams["origin"] == Origin.SAMPLED).cumsum(0) == 0
    streams["origin"] = streams["origin"].masked_fill(before, Origin.PROMPT)
    return streams


def _spread(mask: Tensor, values: Numbers | None) -> Tensor:
    """Return numbers of the sampled tokens at their places, NaN elsewhere."""
    spread = torch.full(mask.shape, torch.nan)
    if values:
        spread[mask] = tensor_of(values)
    return spread


def tensor_of(values: Numbers) -> Tensor:
    """Return numbers as float32; None is NaN."""
    return torch.tensor([torch.nan if each is None else each for each in values], dtype=torch.float32)
