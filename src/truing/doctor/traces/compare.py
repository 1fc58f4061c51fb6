"""Where two traces first differ: the step, the row, the token, and in which numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.traces.read import trace_steps
from truing.utils.format import with_count

ORDER = (
    *("token_ids", "origin", "policy_mask", "supervised_mask", "kl_mask", "sampler_logprob", "ref_logprob"),
    *("old_logprob", "value", "returns", "advantage", "new_logprob", "entropy", "token_gradient"),
)
"""Streams in the order in which a step computes them: what differs first is above what follows from it."""


@dataclass(frozen=True)
class StreamDifference:
    """A number that differs in a step."""

    name: str
    tokens: int  # that differ
    compared: int
    largest: float  # difference where both have a number; NaN without one
    sample_id: str  # of the first one
    token: int
    first: float
    second: float


@dataclass(frozen=True)
class TraceComparison:
    """Two traces up to the first step that differs."""

    same_steps: int
    step: int | None = None  # the trainer's number of the first that differs
    what: str = ""  # if not numbers of the same tokens
    streams: list[StreamDifference] = field(default_factory=list["StreamDifference"])
    equal: list[str] = field(default_factory=list[str])

    @property
    def is_same(self) -> bool:
        """Whether all steps are the same."""
        return self.step is None

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each line with its style."""
        if self.same_steps:
            yield f"{with_count(self.same_steps, 'step is', 'steps are')} the same, token by token", "green"
        if self.what:
            yield f"step {self.step} differs: {self.what}", "bold red"
        for each in self.streams:
            at = f"{each.tokens} of {with_count(each.compared, 'token')}"
            yield (
                f"step {self.step} differs: {each.name} at {at},"
                f" by up to {each.largest:.3g}; the first at sample {each.sample_id}, token {each.token}:"
                f" {each.first:.6g} | {each.second:.6g}",
                "bold red",
            )
        if self.equal:
            yield f"the same in that step: {', '.join(self.equal)}", ""


def compare_traces(one: Path, other: Path) -> TraceComparison:
    """Compare the steps of two traces in their order, up to the first difference."""
    firsts, seconds = (iter(trace_steps(each)) for each in (one, other))
    same = 0
    for first, _ in firsts:
        if (second := next(seconds, None)) is None:
            return TraceComparison(same, first.step + 1, f"{one} alone has it")
        if (found := _compared(first, second[0], same)) is not None:
            return found
        same += 1
    if (further := next(seconds, None)) is not None:
        return TraceComparison(same, further[0].step + 1, f"{other} alone has it")
    return TraceComparison(same)


def _compared(one: Step, other: Step, same: int) -> TraceComparison | None:
    """Return how two steps differ; None if they are the same."""
    number = one.step + 1
    if one.step != other.step:
        return TraceComparison(same, number, f"its number is {other.step + 1} in the other trace")
    if what := _rows(one, other):
        return TraceComparison(same, number, what)
    optimizer_steps = zip_longest(one.at_each_optimizer_step(), other.at_each_optimizer_step())
    for first, second in optimizer_steps:
        if first is None or second is None:
            return TraceComparison(same, number, "only one of both has a further optimizer step")
        streams, equal = _streams(first[1], second[1])
        if streams:
            return TraceComparison(same, number, "", streams, equal)
    return None


def _streams(one: Step, other: Step) -> tuple[list[StreamDifference], list[str]]:
    """Return the streams of an optimizer step that differ, and the names of the others."""
    names = sorted(one.tokens.keys() | other.tokens.keys(), key=_place)
    nothing_N = torch.full((len(one.sample_of_token),), torch.nan)
    found = [
        (name, _stream(one, name, one.tokens.get(name, nothing_N), other.tokens.get(name, nothing_N)))
        for name in names
    ]
    rewards = [torch.tensor([sample.reward for sample in step.samples]) for step in (one, other)]
    found.insert(0, ("reward", _stream(one, "reward", *(each[one.sample_of_token] for each in rewards))))
    return [each for _, each in found if each], [name for name, each in found if not each]


def _place(name: str) -> int:
    """Return the place of a stream in the order in which a step computes them."""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _rows(one: Step, other: Step) -> str:
    """Return how the rows differ, as text; "" if both have the same tokens."""
    names = [[sample.sample_id for sample in step.samples] for step in (one, other)]
    if names[0] != names[1]:
        return " | ".join(f"{with_count(len(each), 'sample')}, the first {each[0]}" for each in names)
    for (_, sample, part), (_, _, second) in zip(one.slices(), other.slices(), strict=True):
        ids, others = one.tokens["token_ids"][part].tolist(), other.tokens["token_ids"][second].tolist()
        if ids != others:
            at = next((i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), None)
            if at is None:
                return f"the length of sample {sample.sample_id}: {len(ids)} | {len(others)} tokens"
            return f"token {at} of sample {sample.sample_id}: id {ids[at]} | {others[at]}"
    return ""


def _stream(step: Step, name: str, one_N: Tensor, other_N: Tensor) -> StreamDifference | None:
    """Return where a stream differs; None if it is the same, NaN included."""
    one_N, other_N = one_N.double(), other_N.double()
    differs_N = (one_N != other_N) & ~(one_N.isnan() & other_N.isnan())
    if not differs_N.any():
        return None
    apart_n = (one_N - other_N).abs()[differs_N]
    apart_n = apart_n[~apart_n.isnan()]  # one of both is missing
    at = int(differs_N.nonzero()[0, 0])
    row = int(step.sample_of_token[at])
    return StreamDifference(
        name,
        int(differs_N.sum()),
        len(one_N),
        float(apart_n.max()) if len(apart_n) else torch.nan,
        step.samples[row].sample_id,
        int(step.position_in_sample[at]),
        float(one_N[at]),
        float(other_N[at]),
    )
