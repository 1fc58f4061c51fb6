"""Rows, records and steps small enough to cut at every byte."""

import torch

from truing.record import RunWriter, SampleRow
from truing.record.segments import encode
from truing.types.batch import StepRecord
from truing.types.sample import Sample, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Origin, Support

NAN = float("nan")


def make_row(
    name="s0", length=3, *, seed=0, sampling_params=None, reward=1.0, support=None, routes=None
) -> SampleRow:
    """A prompt token, then sampled ones; numbers are random, the value stream was never recorded."""
    generator = torch.Generator().manual_seed(seed)
    origin = torch.full((length,), Origin.SAMPLED, dtype=torch.uint8)
    origin[0] = Origin.PROMPT
    drawn = origin == Origin.SAMPLED

    def numbers():
        return torch.where(drawn, -torch.rand(length, generator=generator), torch.tensor(NAN))

    sample = Sample.with_defaults(
        sample_id=name,
        rollout_id=name,
        group_id="g0",
        task_id="t0",
        family="sums",
        prompt_hash="abc",
        prompt_length=1,
        turns=(TurnSpan(1, length, FinishReason.STOP, 3, "d1", 0.5),),
        sampling_params=sampling_params or SamplingParams(temperature=0.7, stop_ids=(2, 5)),
        old_source="sampler",
        reward=reward,
        token_ids=torch.randint(0, 50_000, (length,), generator=generator),
        origin=origin,
        policy_mask=drawn,
        sampler_logprob=numbers(),
        old_logprob=numbers(),
        advantage=numbers(),
        support=support,
        routes=routes,
    )
    return SampleRow(
        sample=sample,
        new_logprob=numbers(),
        entropy=numbers(),
        raw_entropy=numbers(),
        token_gradient=numbers(),
        inner_step=0,
        text="4\x1b[31m é",
        status=Status.DONE,
        reward_parts={"exact": 1.0, "format": NAN},
        messages=({"role": "user", "content": "2+2?"},),
        outcome={"mail": [1, None]},
        ended_by=EndedBy.ENVIRONMENT,
        error="",
    )


def make_record(step, rows, stage="grpo", **metrics) -> StepRecord:
    return StepRecord(
        step=step,
        stage=stage,
        metrics={"reward/mean": 0.5, **metrics},
        loss_label="on_policy",
        samples=tuple(row.sample for row in rows),
        seconds={"forward": 0.25},
    )


def write_steps(writer: RunWriter, steps, stage="grpo") -> None:
    for step in steps:
        rows = [make_row(f"s{i}", 3 + i, seed=step * 10 + i) for i in range(2)]
        writer.write_step(make_record(step, rows, stage), rows)


def same_row(a: SampleRow, b: SampleRow) -> bool:
    """Equal to the bit, NaN equal to NaN."""
    return encode("x", 0, [a]) == encode("x", 0, [b])


def support_of(*sizes) -> Support:
    counts = torch.tensor([0, *sizes])
    return Support(torch.arange(int(counts.sum()), dtype=torch.int32), counts.cumsum(0))
