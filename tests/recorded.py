"""Samples and steps small enough to cut at every byte."""

from types import SimpleNamespace

import torch

from truing.record import RunWriter
from truing.record.segments import encode
from truing.types.passes import NO_PASSES, PASS_STREAMS, Passes
from truing.types.sample import FLOAT_STREAMS, Sample, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.types.token import Origin, Support

NAN = float("nan")
COMPUTED = ("new_logprob", "entropy", "raw_entropy", "token_gradient")


def random_numbers(drawn, seed):
    """Random numbers at drawn tokens, NaN at others."""
    generator = torch.Generator().manual_seed(seed)
    return torch.where(drawn, -torch.rand(len(drawn), generator=generator), torch.tensor(NAN))


def make_sample(name="s0", length=3, *, seed=0, sampling_params=None, reward=1.0, **known) -> Sample:
    """A prompt token, then sampled ones; numbers are random, the value stream was never recorded."""
    origin = torch.full((length,), Origin.SAMPLED, dtype=torch.uint8)
    origin[0] = Origin.PROMPT
    drawn = origin == Origin.SAMPLED
    ids = torch.randint(0, 50_000, (length,), generator=torch.Generator().manual_seed(seed))
    facts = {
        "sample_id": name,
        "rollout_id": name,
        "group_id": "g0",
        "task_id": "t0",
        "family": "sums",
        "prompt_hash": "abc",
        "prompt_length": 1,
        "turns": (TurnSpan(1, length, FinishReason.STOP, 3, "d1", 0.5),),
        "sampling_params": sampling_params or SamplingParams(temperature=0.7, stop_ids=(2, 5)),
        "old_source": "sampler",
        "reward": reward,
        "text": "4\x1b[31m é",
        "status": Status.DONE,
        "reward_parts": {"exact": 1.0, "format": NAN},
        "messages": ({"role": "user", "content": "2+2?"},),
        "outcome": {"mail": [1, None]},
        "ended_by": EndedBy.ENVIRONMENT,
    }
    streams = {
        "token_ids": ids,
        "origin": origin,
        "policy_mask": drawn,
        "sampler_logprob": random_numbers(drawn, seed + 1),
        "old_logprob": random_numbers(drawn, seed + 2),
        "advantage": random_numbers(drawn, seed + 3),
    }
    return Sample.with_defaults(**facts | streams | known)


def make_passes(samples, seed=0, **streams) -> Passes:
    """One pass of each sample with random numbers, but for these streams."""
    if not samples:
        return NO_PASSES
    drawn = torch.cat([each.policy_mask for each in samples])
    computed = {name: random_numbers(drawn, seed + 10 + i) for i, name in enumerate(COMPUTED)}
    return Passes.one_each(len(samples), computed | streams)


def make_table(
    step, samples, stage="grpo", *, seconds=None, facts=None, label="on_policy", passes=None, **metrics
) -> StepTable:
    numbers = StepNumbers(
        stage, step, {"reward/mean": 0.5, **metrics}, facts or {}, label, seconds or {"forward": 0.25}
    )
    return table_of_samples(numbers, samples, make_passes(samples, step) if passes is None else passes)


class RecordedSample(SimpleNamespace):
    """A sample of a step: its facts, and its part of each stream; NaN where the step has none."""

    def __len__(self):
        return len(self.token_ids)


def samples_of(table: StepTable) -> list[RecordedSample]:
    numbers = {name: table.stream(name).float() for name in (*FLOAT_STREAMS, *PASS_STREAMS)}
    streams = numbers | dict(table.tokens)
    routes = table.routes or [None] * len(table.samples)
    return [
        RecordedSample(
            **vars(sample) | {"routes": routes[i]} | {name: stream[part] for name, stream in streams.items()}
        )
        for i, sample, part in table.slices()
    ]


def write_steps(writer: RunWriter, steps, stage="grpo") -> None:
    for step in steps:
        samples = [make_sample(f"s{i}", 3 + i, seed=step * 10 + i) for i in range(2)]
        writer.write_step(make_table(step, samples, stage))


def same_table(a: StepTable, b: StepTable) -> bool:
    """Equal to the bit, NaN equal to NaN."""
    return encode(a) == encode(b)


def support_of(*sizes) -> Support:
    counts = torch.tensor([0, *sizes])
    return Support(torch.arange(int(counts.sum()), dtype=torch.int32), counts.cumsum(0))
