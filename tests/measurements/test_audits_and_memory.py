"""Audits need no more memory than the step, and a run goes on without one whose memory runs out."""

import pytest
import torch

import truing
from dev.faults.planted.gradients import ROW_TWICE
from truing.learner import step
from truing.measurements import row_gradients
from truing.measurements.draw_audit import DrawAudit
from truing.measurements.plain_forward import PlainForward
from truing.measurements.plain_gradient import PlainBackward
from truing.record import RunReader


def test_a_run_goes_on_without_an_audit_whose_memory_runs_out(mini, tmp_path, monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 534.00 MiB.")

    monkeypatch.setattr(row_gradients, "_gradient_sum", fails)
    run = truing.train(mini(), out=tmp_path / "run", on_event=lambda *_: None).run
    reader = RunReader(run)
    first, second, *_, last = (row.facts for row in reader.steps() if row.stage == "sft")
    assert first["not_audited"] == ["gradient"]
    assert "row_gradients" not in first
    assert ("plain" in second, "gradient" in last) == (True, True)  # the other audits ran
    assert first["audit_cost"]["gradient"] > 0  # as costly as if it had ended: not tried at each step
    texts = [event.payload["text"] for event in reader.events() if event.kind == "incident"]
    assert (
        texts[0] == "memory ran out in the audit 'gradient', which is left out here: lower optimizer.memory"
    )


@pytest.mark.integration
def test_after_an_audit_without_memory_the_step_has_its_dropout_and_no_gradient(mini, tmp_path, monkeypatch):
    """An audit computes in evaluation mode, and may be left in its middle."""
    seen, real = [], step.accumulate_gradients

    def fails(measurement, _):
        learner = measurement.step.learner
        learner.model.eval()
        for weight in learner.parameters.values():
            weight.grad = torch.ones_like(weight)
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def watched(learner, *args):
        gradients = [weight.grad for weight in learner.parameters.values()]
        dropouts = [part for name, part in learner.model.named_modules() if name.endswith("lora_dropout")]
        seen.append((all(each is None for each in gradients), {part.training for part in dropouts}))
        return real(learner, *args)

    monkeypatch.setattr(DrawAudit, "before_optimizer_steps", fails)
    for audit in (PlainForward, PlainBackward):  # as where they are not due
        monkeypatch.setattr(audit, "before_optimizer_steps", lambda *_: None)
    monkeypatch.setattr(step, "accumulate_gradients", watched)
    lora = {"rank": 2, "alpha": 4.0, "dropout": 0.1}
    truing.train(mini(lora=lora), out=tmp_path / "run", on_event=lambda *_: None)
    assert set(map(str, seen)) == {str((True, {True}))}


def test_an_audit_that_fails_otherwise_ends_the_run(mini, tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(row_gradients, "_gradient_sum", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        truing.train(mini(), out=tmp_path / "run", on_event=lambda *_: None)


@pytest.mark.integration
def test_gradients_are_summed_over_smaller_micro_batches(mini, tmp_path, monkeypatch):
    """They have at most half of the trainer's rows, or one: another split than the trainer's."""
    real, splits = row_gradients._smaller, []

    def watched(learner, rows, as_trained):
        splits.append((as_trained, real(learner, rows, as_trained)))
        return splits[-1][1]

    monkeypatch.setattr(row_gradients, "_smaller", watched)
    truing.train(mini(), out=tmp_path / "run", on_event=lambda *_: None)
    with_gradient = [split for split in splits if split[0]]
    assert with_gradient
    for trained, audited in with_gradient:
        most = max(len(micro.samples) for micro in trained) // 2
        assert all(len(micro.samples) <= max(1, most) for micro in audited)
        assert max(micro.tokens for micro in audited) <= max(micro.tokens for micro in trained)
        one, other = (
            sorted(row.sample_id for micro in split for row in micro.samples) for split in (trained, audited)
        )
        assert one == other


@pytest.mark.integration
def test_a_fault_in_how_the_trainer_splits_rows_is_not_repeated(mini, tmp_path):
    """The second micro-batch is the first again; the sum is still that of all rows."""
    with ROW_TWICE.plant():
        run = truing.train(
            mini(optimizer={"micro_batch_tokens": 64}, doctor={"stop": False, "budget": 1.0}),
            out=tmp_path / "run",
            on_event=lambda *_: None,
        ).run
    fact = RunReader(run).steps()[0].facts["row_gradients"]
    assert fact["difference"] > 0.1 * fact["norm"]
