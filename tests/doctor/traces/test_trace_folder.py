"""An audit's steps are a trace like those of other trainers, with what its audit measured."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from truing.doctor.evidence import Setup
from truing.doctor.traces.read import trace_steps
from truing.doctor.traces.setup_words import declared_setup, words_of
from truing.doctor.traces.step_file import StepFacts, StepFile
from truing.doctor.traces.write import TraceFolder
from truing.errors import RecordError
from truing.types.status import FinishReason
from truing.types.token import Origin

SETUP = Setup(trainer="trl", algo="grpo", stop_ids=(9,), bos_id=-1, left_out=("top_k=5",), max_new_tokens=4)
ROWS = [[5, 6, 7], [5, 8, 9]]


def decode(ids):
    return [f"<{i}>" for i in ids]


def step(number=1, **facts):
    """Two rows of a prompt token and two sampled ones."""
    tensors = {
        "token_ids": torch.tensor([*ROWS[0], *ROWS[1]]).int(),
        "row_lengths": torch.tensor([3, 3]).int(),
        "origin": torch.tensor([Origin.PROMPT, Origin.SAMPLED, Origin.SAMPLED] * 2).to(torch.uint8),
        "loss_mask": torch.tensor([0, 1, 1] * 2).to(torch.uint8),
        "reward": torch.tensor([math.nan, 1.0], dtype=torch.float64),
    }
    return StepFile(
        Path("a step"), StepFacts.model_construct(step=number, origin_source="roles", **facts), tensors
    )


def written(folder, *steps, setup=SETUP):
    trace = TraceFolder(folder, setup, decode)
    for each in steps:
        trace.write(each, setup)
    return [step for step, _ in trace_steps(folder)]


def test_what_an_audit_knows_comes_back(tmp_path):
    regraded = [{"sample_id": "a", "stored": math.nan, "again": math.nan}]
    facts = {"regraded": regraded, "clip": {"norm": math.inf, "eps": 1e-7}}
    messages = [[{"role": "user", "content": "what?"}], []]
    (read,) = written(
        tmp_path / "trace",
        step(
            sample_id=["a", "b"],
            group_id=["g", "g"],
            weights=["digest", ""],
            version=[3, 3],
            messages=messages,
            numbers={"lr": 0.1, "grad/norm": math.nan},
            facts=facts,
        ),
    )
    assert read.setup == SETUP
    assert [row.sample_id for row in read.samples] == ["a", "b"]
    turns = [row.turns[0] for row in read.samples]
    assert [(turn.sampler_version, turn.weight_digest) for turn in turns] == [(3, "digest"), (3, "")]
    assert read.samples[0].messages == tuple(messages[0])
    assert read.metrics["lr"] == 0.1
    assert math.isnan(read.metrics["grad/norm"])
    assert math.isnan(read.facts["regraded"][0]["stored"])
    assert read.facts["clip"]["norm"] == math.inf


def test_texts_are_written_once(tmp_path):
    written(tmp_path / "trace", step(1), step(2))
    *_, (_, last) = trace_steps(tmp_path / "trace")
    assert last([5, 9]) == ["<5>", "<9>"]
    second = (tmp_path / "trace/000002.safetensors").read_bytes()
    assert b"<5>" not in second


def test_a_second_training_goes_on_from_the_last_step(tmp_path):
    steps = written(tmp_path / "trace", step(1), step(2), step(1), step(2), step(9))
    assert [each.step + 1 for each in steps] == [1, 2, 3, 4, 9]
    assert all(a.step < b.step for a, b in pairwise(steps))


def test_settings_that_are_declared_later_are_those_of_the_trace(tmp_path):
    trace = TraceFolder(tmp_path, SETUP, decode)
    trace.write(step(), replace(SETUP, schedule="linear", warmup_steps=0))
    assert next(trace_steps(tmp_path))[0].setup.schedule == "linear"


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="a folder of its own"):
        TraceFolder(tmp_path, SETUP, decode)


@pytest.mark.parametrize(
    "setup",
    [
        SETUP,
        Setup(trainer="trl"),
        replace(SETUP, loss_scale=None, aggregation="generation_token_mean", generation_micro_batches=3),
        replace(SETUP, clip_low=5.0, reward_weights={"right": 2.0}, tools=("add",)),
    ],
)
def test_the_words_of_a_setup_declare_it(setup):
    words = json.loads(json.dumps(words_of(setup)))
    assert declared_setup(words, setup.trainer, "here") == (setup, {})


def test_settings_that_no_trace_can_hold_are_refused_at_the_start(tmp_path):
    with pytest.raises(RecordError, match=r"setup\.clip_high is out of range"):
        TraceFolder(tmp_path / "trace", replace(SETUP, clip_high=math.inf), decode)


@pytest.mark.parametrize(
    ("reason", "ended", "status"),
    [
        (None, [FinishReason.UNKNOWN, FinishReason.STOP], ["", "done"]),
        ("unknown", [FinishReason.UNKNOWN, FinishReason.UNKNOWN], ["", ""]),
        ("length", [FinishReason.LENGTH, FinishReason.LENGTH], ["truncated", "truncated"]),
    ],
)
def test_how_rows_ended_is_given_or_follows_from_their_tokens(tmp_path, reason, ended, status):
    given = {} if reason is None else {"finish_reason": [reason] * 2}
    (read,) = written(tmp_path / "trace", step(**given))
    assert [row.turns[-1].finish_reason for row in read.samples] == ended
    assert [row.status for row in read.samples] == status


def test_a_demonstration_that_was_cut_is_truncated(tmp_path):
    sft = replace(SETUP, algo="sft")
    each = step(finish_reason=["length", "stop"])
    each.tensors["origin"][each.tensors["origin"] == Origin.SAMPLED] = Origin.DEMO
    (read,) = written(tmp_path / "trace", each, setup=sft)
    assert [row.truncated for row in read.samples] == [True, False]
    assert [row.turns[-1].finish_reason for row in read.samples] == [FinishReason.DEMO] * 2
