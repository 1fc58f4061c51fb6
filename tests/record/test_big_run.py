"""dev/measure/big_run.py writes what truing itself would read of a run it trained."""

import json
import runpy
import sys

import pytest

from truing.metrics.definitions import check_metric_names
from truing.record import RunReader, compact
from truing.record.index import SegmentRef
from truing.record.sample_columns import SampleColumns
from truing.types.status import Status

STEPS, SAMPLES, LIVE = 70, 4, 3


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big") / "run"
    numbers = ["--steps", str(STEPS), "--samples", str(SAMPLES), "--live", str(LIVE)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["big_run.py", str(folder), *numbers])
        runpy.run_module("dev.measure.big_run", run_name="__main__")
    return folder


def test_every_step_can_be_read_and_the_columns_say_the_same(big):
    reader = RunReader(big)
    steps = reader.steps()
    tables = [reader.table(step) for step in steps]
    samples = [table.sample(i) for table in tables for i in range(SAMPLES)]
    assert [step.step for step in steps] == list(range(STEPS))
    assert len(list((big / "rollouts").iterdir())) == LIVE
    assert len(samples) == STEPS * SAMPLES
    known = SampleColumns(big).refresh(map(SegmentRef.from_step, steps))
    assert not known.unreadable
    for name in ("sample_id", "group_id", "task_id", "family", "reward", "truncated", "prompt_length"):
        assert known.table[name].to_pylist() == [getattr(sample, name) for sample in samples], name
    assert known.table["turn_tokens"].to_pylist() == [int(sample.policy_mask.sum()) for sample in samples]
    for row in samples:
        said = row.token_ids[row.policy_mask].tolist()
        assert bytes(said[: len(row.text)]).decode() == row.text == row.messages[-1]["content"]
        assert (row.status == Status.TRUNCATED) == (len(said) == len(row.text)) == row.truncated


def test_its_lines_are_those_of_a_run(big):
    reader = RunReader(big)
    steps = reader.steps()
    check_metric_names({name for step in steps for name in step.metrics})
    for step in steps:
        rewards = [sample.reward for sample in reader.table(step).samples]
        assert step.metrics["reward/mean"] == pytest.approx(sum(rewards) / SAMPLES)
    facts = reader.run_json()
    assert facts["recipe"]["grpo"]["steps"] == STEPS
    assert f"[grpo]\nsteps = {STEPS}\n" in reader.recipe()
    assert (big / facts["tokenizer"] / "tokenizer.json").is_file()
    kinds = {event.kind for event in reader.events()}
    assert kinds == {"numbers", "stage", "eval", "finding"}  # and not finished
    assert all("text" in each.payload for each in reader.events() if each.kind == "finding")
    json.dumps(facts)


def test_it_can_be_compacted(big):
    before = len(RunReader(big).find_table("grpo", STEPS - 1).samples)
    assert compact(big) == STEPS
    assert len(RunReader(big).find_table("grpo", STEPS - 1).samples) == before
    RunReader(big).check_complete()
