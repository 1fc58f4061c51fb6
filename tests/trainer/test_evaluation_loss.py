"""The loss on demonstrations of evaluation tasks: when it is measured, and that this changes nothing."""

import pytest
from runs import mini_table

from truing import train
from truing.errors import DataError
from truing.record import RunReader


def events_and_losses(path, **sft):
    table = mini_table(stages=["sft"], eval={"tasks": 0}, sft={"steps": 3, **sft})
    train(table, out=path, on_event=lambda kind, facts: None)
    reader = RunReader(path)
    measured = [event.payload for event in reader.events() if event.kind == "eval_loss"]
    return measured, [row.metrics["loss/total"] for row in reader.steps()]


@pytest.mark.integration
def test_the_loss_is_measured_before_during_and_after_the_stage(tmp_path):
    measured, losses = events_and_losses(tmp_path / "measured", eval_tasks=4, eval_every=2)
    assert [each["step"] for each in measured] == [0, 2, 3]
    assert {each["tasks"] for each in measured} == {4}
    values = [each["loss"] for each in measured]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(losses[0], rel=0.2)  # of an untrained model
    nothing, same = events_and_losses(tmp_path / "plain")
    assert nothing == []
    assert same == losses


def test_more_tasks_than_the_environment_has_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"at least sft\.eval_tasks = 1000000"):
        events_and_losses(tmp_path / "run", eval_tasks=1_000_000)
