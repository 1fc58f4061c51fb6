"""What was written is read back, NaN included."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import NAN, make_sample, make_table, support_of

from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.record import RunReader, RunWriter
from truing.record.segments import decode, encode, step_table_of
from truing.types.passes import Passes
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.types.token import Origin
from truing.utils.jsonl import dump_json, floats_from_json

FLOATS = st.floats(width=32)


def test_a_run_reads_back_as_it_was_written(run):
    reader = RunReader(run)
    assert reader.run_json() == {"run_id": "r", "tokenizer": "tok"}
    assert reader.recipe() == "seed = 1\n"
    assert [(s.stage, s.step, s.loss_label) for s in reader.steps()] == [
        ("grpo", i, "on_policy") for i in range(3)
    ]
    assert reader.steps()[0].seconds == {"forward": 0.25}
    assert [e.kind for e in reader.events()] == ["started", "numbers", "finished"]
    assert reader.events()[0].payload == {"steps": 3}


def test_a_sample_reads_back_with_every_stream_and_fact(run):
    written = make_sample("s1", 4, seed=21)
    table = RunReader(run).find_table("grpo", 2)
    read = table.sample(1)
    for name in ("token_ids", "origin", *MASKS, *FLOAT_STREAMS):
        a, b = getattr(written, name), getattr(read, name)
        assert a.dtype == b.dtype, name
        assert torch.equal(
            a.nan_to_num(9) if a.is_floating_point() else a, b.nan_to_num(9) if b.is_floating_point() else b
        )
    assert read.turns == written.turns
    assert read.sampling_params == written.sampling_params
    assert read.support is None
    assert (read.text, read.status, read.messages) == (written.text, Status.DONE, written.messages)
    assert read.reward_parts["exact"] == 1.0
    assert math.isnan(read.reward_parts["format"])


def test_a_stream_without_any_number_is_absent(run):
    table = RunReader(run).find_table("grpo", 0)
    assert "ref_logprob" not in table.streams
    assert table.stream("ref_logprob").isnan().all()


def test_nan_and_infinity_survive_and_are_never_zero(tmp_path):
    row = make_sample(reward=NAN)
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(
            make_table(0, [row], **{"grad/norm": NAN, "ratio/max": math.inf, "ratio/min": -math.inf})
        )
    text = (tmp_path / "run/steps.jsonl").read_text()
    assert '"grad/norm": null' in text
    assert "NaN" not in text
    metrics = RunReader(tmp_path / "run").steps()[0].metrics
    assert math.isnan(metrics["grad/norm"])
    assert (metrics["ratio/max"], metrics["ratio/min"]) == (math.inf, -math.inf)
    read = RunReader(tmp_path / "run").find_table("grpo", 0).sample(0)
    assert math.isnan(read.reward)
    assert math.isnan(read.bootstrap_value)
    assert read.value.isnan().all()
    assert read.sampler_logprob.isnan().tolist() == [True, False, False]


def test_a_fact_without_a_number_is_judged_as_it_was(tmp_path):
    """The second grading of a rollout failed: a rule sees NaN on record as it did in the run."""
    regraded = [
        {"sample_id": "s1", "stored": 1.0, "again": NAN},
        {"sample_id": "s2", "stored": 0.5, "again": math.inf},
    ]
    table = replace(make_table(0, [make_sample("s1", 3), make_sample("s2", 3)]), facts={"regraded": regraded})
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(table)
    reader = RunReader(tmp_path / "run")
    on_record = reader.table(reader.steps()[0])
    again = [each["again"] for each in on_record.facts["regraded"]]
    assert math.isnan(again[0])
    assert again[1] == math.inf
    steps = [Step.of(each, Setup(), History()) for each in (table, on_record)]
    claims = [list(RULES["RWD002"].judge(step)) for step in steps]
    assert claims[0] == claims[1] != []


def test_a_support_reads_back_with_its_empty_slices():
    row = make_sample(sampling_params=SamplingParams(top_p=0.9), support=support_of(0, 2, 1))
    read = again(make_table(0, [row])).supports[0]
    assert read.at(0).tolist() == []
    assert read.at(1).tolist() == [0, 1]
    assert read.at(2).tolist() == [2]
    assert read.ids.dtype == torch.int32


def again(table: StepTable) -> StepTable:
    """The step as it is read back."""
    return step_table_of(decode(encode(table)), table)


def test_a_step_without_samples_is_recorded(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(make_table(0, []))
    assert RunReader(tmp_path / "run").find_table("grpo", 0).samples == []


def test_every_pass_of_a_sample_reads_back():
    samples = [make_sample("a", 3), make_sample("b", 2), make_sample("c", 4)]
    passes = Passes(
        sample=torch.tensor([0, 0, 0, 2]),
        optimizer_step=torch.tensor([0, 1, 3, 1]),
        micro_batch=torch.tensor([0, 2, -1, 1]),
        rank=torch.tensor([0, 1, -1, 0]),
        streams={"new_logprob": torch.arange(13.0)},
    )
    read = again(make_table(0, samples, passes=passes))
    for name in ("sample", "optimizer_step", "micro_batch", "rank"):
        assert torch.equal(getattr(read.passes, name), getattr(passes, name))
    assert read.passes.streams["new_logprob"].tolist() == list(range(13))
    assert read.optimizer_step_of_sample.tolist() == [3, -1, 1]
    assert read.kept == [True, False, True]
    last = [6.0, 7.0, 8.0, None, None, 9.0, 10.0, 11.0, 12.0]
    assert [None if math.isnan(each) else each for each in read.tokens["new_logprob"].tolist()] == last
    first = read.select(read.passes.epoch == 0)
    assert [sample.sample_id for sample in first.samples] == ["a", "c"]
    assert first.tokens["new_logprob"].tolist() == [0.0, 1.0, 2.0, 9.0, 10.0, 11.0, 12.0]


@st.composite
def any_sample(draw) -> Sample:
    length = draw(st.integers(1, 6))

    def floats():
        return torch.tensor(draw(st.lists(FLOATS, min_size=length, max_size=length)), dtype=torch.float32)

    origin = torch.tensor(
        draw(st.lists(st.sampled_from(Origin), min_size=length, max_size=length)), dtype=torch.uint8
    )
    ids = draw(st.lists(st.integers(0, 2**62), min_size=length, max_size=length))
    name = draw(st.text(max_size=5))
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=draw(st.integers(1, length)),
        turns=tuple(
            TurnSpan(0, length, FinishReason.LENGTH, i, name, draw(st.floats()))
            for i in range(draw(st.integers(0, 2)))
        ),
        sampling_params=SamplingParams(temperature=draw(st.floats(0, 2)), stop_ids=tuple(ids[:2])),
        reward=draw(st.floats()),
        token_ids=torch.tensor(ids, dtype=torch.long),
        origin=origin,
        policy_mask=origin == Origin.SAMPLED,
        support=support_of(*[draw(st.integers(0, 3)) for _ in range(length)])
        if draw(st.booleans())
        else None,
        **{number: floats() for number in FLOAT_STREAMS},
        text=name,
        status=draw(st.sampled_from(Status)),
        reward_parts=draw(st.dictionaries(st.text(max_size=3), st.floats(), max_size=2)),
        outcome=draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)),
        ended_by=draw(st.sampled_from(EndedBy)),
        error=draw(st.text(max_size=5)),
        messages=draw(
            st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), max_size=2).map(
                tuple
            )
        ),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(any_sample(), max_size=3))
def test_any_samples_survive_the_round_trip_to_the_bit(samples):
    table = table_of_samples(StepNumbers("grpo", 7, {}), samples)
    read = again(table)
    assert encode(read) == encode(table)
    assert set(read.streams) == set(table.streams)
    for name, stream in table.streams.items():
        same = stream.view(torch.int32) if stream.is_floating_point() else stream
        assert torch.equal(read.streams[name].view(same.dtype), same), name
    for a, b in zip(samples, read.samples, strict=True):
        assert (a.sampling_params, a.status) == (b.sampling_params, b.status)
        assert repr(a.turns) == repr(b.turns)
        assert repr(a.reward_parts) == repr(b.reward_parts)
        assert (a.text, a.messages) == (b.text, b.messages)
        assert repr(a.reward) == repr(b.reward)


@given(st.dictionaries(st.text(), st.floats()))
def test_numbers_by_name_survive_json(numbers):
    assert repr(floats_from_json(json.loads(dump_json(numbers)))) == repr(numbers)


def test_what_is_no_json_is_refused(tmp_path):
    with RunWriter(tmp_path / "run") as writer, pytest.raises(RecordError, match="cannot be written as JSON"):
        writer.write_event("odd", what=object())
    assert RunReader(tmp_path / "run").events() == []
