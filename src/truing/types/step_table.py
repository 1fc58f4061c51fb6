"""What a step leaves: its numbers, its samples, their tokens, and what each optimizer step computed of them.

Metrics, the doctor, the record and the board read a step in this one form, of Truing or of another trainer.
Nothing in it is validated when it is made, so that a faulty step can be recorded and judged; readers of files
validate. A missing value is absent or NaN.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Self, TypeVar

import torch
from torch import Tensor

from truing.types.facts import Facts
from truing.types.passes import NO_PASSES, Passes
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample, SampleFacts
from truing.types.token import Origin, Support

T = TypeVar("T")

SAMPLE_STREAMS = ("token_ids", "origin", "excluded", *MASKS, *FLOAT_STREAMS)
"""Streams of the N tokens of all samples."""


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a step: what a reader keeps of steps whose samples it does not need."""

    stage: str
    step: int
    metrics: Mapping[str, float]
    facts: Facts = field(default_factory=Facts)
    loss_label: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def only_numbers(self) -> "StepNumbers":
        """These numbers alone."""
        return StepNumbers(**{item.name: getattr(self, item.name) for item in fields(StepNumbers)})


@dataclass(frozen=True, eq=False, kw_only=True)
class StepTable(StepNumbers):
    """A step: B samples of N tokens, one sample after the other, and P passes."""

    samples: Sequence[SampleFacts]
    starts: Sequence[int]  # B + 1: tokens of sample i are starts[i] to starts[i + 1]
    streams: Mapping[str, Tensor]  # SAMPLE_STREAMS: [N]; one without any number is absent
    passes: Passes = NO_PASSES
    supports: Sequence[Support | None] = ()  # of each sample; empty if none has one
    routes: Sequence[Tensor | None] = ()  # the same: see ``Sample.routes``

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each sample."""
        return [end - start for start, end in zip(self.starts, self.starts[1:], strict=False)]

    @cached_property
    def sample_of_token(self) -> Tensor:
        """The sample of each token: [N] int64."""
        return torch.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))

    @cached_property
    def position_in_sample(self) -> Tensor:
        """The index of each token within its sample: [N] int64."""
        starts = torch.tensor(self.starts[:-1], dtype=torch.int64)
        return torch.arange(len(self.sample_of_token)) - starts[self.sample_of_token]

    @cached_property
    def optimizer_step_of_sample(self) -> Tensor:
        """The optimizer step of each sample's last pass: [B] int64; −1 for a sample without one."""
        return self._of_last_pass(self.passes.optimizer_step)

    @cached_property
    def rank_of_sample(self) -> Tensor:
        """The rank that computed each sample's last pass: [B] int64; −1 if none did."""
        return self._of_last_pass(self.passes.rank)

    @cached_property
    def micro_batch_of_sample(self) -> Tensor:
        """The micro-batch of each sample's last pass: [B] int64; −1 for a sample without one."""
        return self._of_last_pass(self.passes.micro_batch)

    def _of_last_pass(self, value_P: Tensor) -> Tensor:
        """Return a value of each sample's last pass: [B] int64; −1 for a sample without one."""
        value_B, last_P = torch.full((len(self.samples),), -1), self.passes.is_last
        value_B[self.passes.sample[last_P]] = value_P[last_P]
        return value_B

    @cached_property
    def kept(self) -> list[bool]:
        """Whether each sample was in the minibatch of an optimizer step."""
        return [number >= 0 for number in map(int, self.optimizer_step_of_sample)]

    @cached_property
    def tokens(self) -> Mapping[str, Tensor]:
        """All streams of the N tokens: of a pass that of each sample's last one, NaN without a pass."""
        passes = self.passes
        index_M = _token_index(self.starts, passes.sample_list)
        chosen_M = passes.is_last.repeat_interleave(
            torch.tensor(self.lengths, dtype=torch.int64)[passes.sample]
        )
        found = dict(self.streams)
        for name, stream_M in passes.streams.items():
            if len(index_M) == len(self.sample_of_token) and bool(chosen_M.all()):
                found[name] = stream_M
            else:
                stream_N = torch.full((len(self.sample_of_token),), math.nan, dtype=stream_M.dtype)
                stream_N[index_M[chosen_M]] = stream_M[chosen_M]
                found[name] = stream_N
        return {name: stream_N for name, stream_N in found.items() if is_known(stream_N)}

    @cached_property
    def policy(self) -> Tensor:
        """Tokens under the policy term: [N] bool."""
        return self.streams["policy_mask"]

    @cached_property
    def trained(self) -> Tensor:
        """Tokens under the policy or the supervised term: [N] bool."""
        return self.policy | self.streams["supervised_mask"]

    @cached_property
    def sampled(self) -> Tensor:
        """Tokens of origin SAMPLED: [N] bool."""
        return self.streams["origin"] == Origin.SAMPLED

    def stream(self, name: str) -> Tensor:
        """Return a stream, [N] float64; NaN where it is missing."""
        if name not in self.tokens:
            return torch.full((len(self.sample_of_token),), math.nan, dtype=torch.float64)
        return self.tokens[name].double()

    def codes(self, name: str) -> Tensor:
        """Return a stream of codes or truth values, [N]; 0 where it is missing, as of another trainer."""
        return self.streams.get(name, torch.zeros(len(self.sample_of_token), dtype=torch.uint8))

    def at_first_optimizer_step(self, name: str) -> Tensor:
        """Return a stream of the passes in the first optimizer step: [N] float64, NaN elsewhere."""
        found_N = torch.full((len(self.sample_of_token),), math.nan, dtype=torch.float64)
        if name in self.passes.streams:
            first = self.passes.select(self.passes.optimizer_step == 0, self.lengths)
            found_N[_token_index(self.starts, first.sample_list)] = first.streams[name].double()
        return found_N

    def slices(self) -> Iterator[tuple[int, SampleFacts, slice]]:
        """Yield each sample with its index and its part of the streams."""
        for index, sample in enumerate(self.samples):
            yield index, sample, self.part(index)

    def part(self, index: int) -> slice:
        """Return the tokens of a sample."""
        return slice(self.starts[index], self.starts[index + 1])

    def at_each_optimizer_step(self) -> Iterator[tuple[int, Self]]:
        """Yield each optimizer step's number, and the step with all samples and its passes alone."""
        numbers = sorted({int(number) for number in self.passes.optimizer_step})
        for number in numbers:
            chosen_P = self.passes.optimizer_step == number
            passes = self.passes if len(numbers) == 1 else self.passes.select(chosen_P, self.lengths)
            yield number, replace(self, passes=passes)

    def select(self, chosen_P: Tensor) -> Self:
        """Return the step with some of its passes, [P] bool, and the samples that have one of them."""
        passes = self.passes
        samples = [index for index, chosen in zip(passes.sample_list, chosen_P, strict=True) if chosen]
        places = {index: place for place, index in enumerate(dict.fromkeys(samples))}
        chosen = passes.select(chosen_P, self.lengths)
        token_N = _token_index(self.starts, places)
        return replace(
            self,
            samples=[self.samples[i] for i in places],
            starts=starts_of([self.lengths[i] for i in places]),
            streams={name: stream_N[token_N] for name, stream_N in self.streams.items()},
            passes=replace(chosen, sample=torch.tensor([places[i] for i in samples], dtype=torch.int64)),
            supports=[self.supports[i] for i in places] if self.supports else (),
            routes=[self.routes[i] for i in places] if self.routes else (),
        )

    def sample(self, index: int) -> Sample:
        """Return a sample with its tokens, for a forward; raise an InvalidValueError if it is malformed."""
        facts, part = self.samples[index], self.part(index)
        known = {name: stream_N[part] for name, stream_N in self.streams.items()}
        return Sample.with_defaults(
            **{item.name: getattr(facts, item.name) for item in fields(SampleFacts)},
            **known,
            support=self.supports[index] if self.supports else None,
            routes=self.routes[index] if self.routes else None,
        )


def starts_of(lengths: Sequence[int]) -> list[int]:
    """Return where each of some sequences starts, and where the last one ends."""
    return [0, *accumulate(lengths)]


def _token_index(starts: Sequence[int], samples: Iterable[int]) -> Tensor:
    """Return the place among the N tokens of each token of some samples, one after the other: int64."""
    places = [torch.arange(starts[i], starts[i + 1]) for i in samples]
    return torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)


def if_any(values: list[T | None]) -> list[T | None]:
    """Return the values of samples; an empty list if no sample has one."""
    return [] if all(each is None for each in values) else values


def is_known(stream: Tensor) -> bool:
    """Return whether a stream has a value that is not NaN."""
    return not stream.is_floating_point() or not bool(stream.isnan().all())


def table_of_samples(
    numbers: StepNumbers, samples: Sequence[Sample], passes: Passes = NO_PASSES
) -> StepTable:
    """Return the step with these numbers, samples and passes."""
    names = SAMPLE_STREAMS if samples else ()
    streams = {name: torch.cat([getattr(sample, name) for sample in samples]) for name in names}
    return StepTable(
        **vars(numbers.only_numbers),
        samples=samples,
        starts=starts_of([len(sample) for sample in samples]),
        streams={name: stream_N for name, stream_N in streams.items() if is_known(stream_N)},
        passes=passes,
        supports=if_any([sample.support for sample in samples]),
        routes=if_any([sample.routes for sample in samples]),
    )
