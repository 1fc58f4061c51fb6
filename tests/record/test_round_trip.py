"""What was written is read back, NaN included."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import NAN, make_record, make_row, support_of

from truing.errors import InvalidValueError, RecordError
from truing.record import RunReader, RunWriter, SampleRow
from truing.record.segments import decode, encode, rows_of
from truing.types.sample import FLOAT_STREAMS, MASKS, Sample, TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
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
    written = make_row("s1", 4, seed=21)
    read = RunReader(run).samples("grpo", 2)[1]
    for name in ("token_ids", "origin", *MASKS, *FLOAT_STREAMS):
        a, b = getattr(written.sample, name), getattr(read.sample, name)
        assert a.dtype == b.dtype, name
        assert torch.equal(
            a.nan_to_num(9) if a.is_floating_point() else a, b.nan_to_num(9) if b.is_floating_point() else b
        )
    assert read.sample.turns == written.sample.turns
    assert read.sample.sampling_params == written.sample.sampling_params
    assert read.sample.support is None
    assert (read.text, read.status, read.messages) == (written.text, Status.DONE, written.messages)
    assert read.reward_parts["exact"] == 1.0
    assert math.isnan(read.reward_parts["format"])


def test_nan_and_infinity_survive_and_are_never_zero(tmp_path):
    row = make_row(reward=NAN)
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(
            make_record(0, [row], **{"grad/norm": NAN, "ratio/max": math.inf, "ratio/min": -math.inf}), [row]
        )
    text = (tmp_path / "run/steps.jsonl").read_text()
    assert '"grad/norm": null' in text
    assert "NaN" not in text
    metrics = RunReader(tmp_path / "run").steps()[0].metrics
    assert math.isnan(metrics["grad/norm"])
    assert (metrics["ratio/max"], metrics["ratio/min"]) == (math.inf, -math.inf)
    read = RunReader(tmp_path / "run").samples("grpo", 0)[0].sample
    assert math.isnan(read.reward)
    assert math.isnan(read.bootstrap_value)
    assert read.value.isnan().all()
    assert read.sampler_logprob.isnan().tolist() == [True, False, False]


def test_a_support_reads_back_with_its_empty_slices():
    row = make_row(sampling_params=SamplingParams(top_p=0.9), support=support_of(0, 2, 1))
    (read,) = rows_of(decode(encode("grpo", 0, [row])))
    assert read.sample.support.at(0).tolist() == []
    assert read.sample.support.at(1).tolist() == [0, 1]
    assert read.sample.support.at(2).tolist() == [2]
    assert read.sample.support.ids.dtype == torch.int32


def test_a_step_without_rows_is_recorded(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_step(make_record(0, []), [])
    assert RunReader(tmp_path / "run").samples("grpo", 0) == ()


@st.composite
def any_row(draw) -> SampleRow:
    length = draw(st.integers(1, 6))

    def floats():
        return torch.tensor(draw(st.lists(FLOATS, min_size=length, max_size=length)), dtype=torch.float32)

    origin = torch.tensor(
        draw(st.lists(st.sampled_from(Origin), min_size=length, max_size=length)), dtype=torch.uint8
    )
    ids = draw(st.lists(st.integers(0, 2**62), min_size=length, max_size=length))
    name = draw(st.text(max_size=5))
    sample = Sample.with_defaults(
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
    )
    return SampleRow(
        sample=sample,
        new_logprob=floats(),
        entropy=floats(),
        raw_entropy=floats(),
        token_gradient=floats(),
        inner_step=draw(st.integers(-1, 3)),
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
@given(st.lists(any_row(), max_size=3))
def test_any_rows_survive_the_round_trip_to_the_bit(rows):
    data = encode("grpo", 7, rows)
    read = rows_of(decode(data))
    assert encode("grpo", 7, read) == data
    for a, b in zip(rows, read, strict=True):
        assert torch.equal(a.sample.token_ids, b.sample.token_ids)
        assert torch.equal(a.sample.advantage.view(torch.int32), b.sample.advantage.view(torch.int32))
        assert torch.equal(a.new_logprob.view(torch.int32), b.new_logprob.view(torch.int32))
        assert (a.sample.sampling_params, a.status) == (b.sample.sampling_params, b.status)
        assert repr(a.sample.turns) == repr(b.sample.turns)
        assert repr(a.reward_parts) == repr(b.reward_parts)
        assert (a.text, a.messages) == (b.text, b.messages)
        assert repr(a.sample.reward) == repr(b.sample.reward)


@given(st.dictionaries(st.text(), st.floats()))
def test_numbers_by_name_survive_json(numbers):
    assert repr(floats_from_json(json.loads(dump_json(numbers)))) == repr(numbers)


def test_what_is_no_json_is_refused(tmp_path):
    with RunWriter(tmp_path / "run") as writer, pytest.raises(RecordError, match="cannot be written as JSON"):
        writer.write_event("odd", what=object())
    assert RunReader(tmp_path / "run").events() == []


def test_a_row_whose_numbers_do_not_cover_its_tokens_is_refused():
    row = make_row()
    with pytest.raises(InvalidValueError, match="entropy of sample s0"):
        SampleRow(**vars(row) | {"entropy": torch.zeros(2)})
