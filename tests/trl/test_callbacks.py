"""What callbacks of TRL get while Truing trains, and what they may not do."""

import pytest
from transformers import EarlyStoppingCallback, TrainerCallback

from truing.errors import InvalidValueError
from truing.trl import SFTConfig, SFTTrainer
from truing.trl.callback_arguments import Absent, callback_arguments

pytestmark = pytest.mark.integration

ROWS = [{"text": f"{word} follows"} for word in ("one", "two", "three", "four")]
SMALL = {"use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 2, "learning_rate": 1e-3}


def trained(tmp_path, callback, steps=2, rows=ROWS, **arguments):
    args = SFTConfig(str(tmp_path / "out"), max_steps=steps, bf16=False, **(SMALL | arguments))
    evaluated = [{"text": "five follows"}]
    trainer = SFTTrainer(
        "tiny", args, train_dataset=rows, eval_dataset=evaluated, callbacks=[callback] if callback else None
    )
    trainer.train()
    return trainer


class Reads(TrainerCallback):
    """Reads what TRL passes."""

    def __init__(self):
        self.seen = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.seen.append(sum(p.numel() for p in model.parameters()) > 0)

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log = state.global_step == 1


def test_a_callback_reads_the_model(tmp_path):
    reads = Reads()
    trainer = trained(tmp_path, reads, logging_strategy="no")
    assert reads.seen == [True]
    assert [line["step"] for line in trainer.state.log_history if "loss" in line] == [1]
    assert trainer._state.model is None


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda control, train_dataloader, **_: len(train_dataloader), "train_dataloader.*does not pass"),
        (lambda control, eval_dataloader, **_: eval_dataloader.dataset, "eval_dataloader"),
        (lambda control, lr_scheduler, **_: lr_scheduler.step(), "lr_scheduler(.|\n)*warmup_steps"),
        (
            lambda control, optimizer, **_: optimizer.param_groups[0].update(lr=1.0),
            "optimizer(.|\n)*set learning_rate",
        ),
        (lambda control, **_: setattr(control, "should_save", True), "should_save(.|\n)*set save_steps"),
        (lambda control, **_: setattr(control, "should_evaluate", True), "should_evaluate(.|\n)*eval_steps"),
    ],
)
def test_what_truing_does_not_do_is_an_error(tmp_path, use, text):
    class Uses(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            use(control=control, **kwargs)

    with pytest.raises(InvalidValueError, match=text):
        trained(tmp_path, Uses())


def test_nothing_but_the_metrics_is_there_after_the_training():
    arguments = callback_arguments(None)
    assert {type(each) for each in arguments.values()} == {Absent}
    with pytest.raises(InvalidValueError, match=r"model(.|\n)*on_train_begin"):
        arguments["model"].config  # noqa: B018 — as a callback reads it


@pytest.mark.parametrize(("rate", "steps"), [(1e-3, 4), (1e-12, 2)])
def test_early_stopping_reads_the_best_loss(tmp_path, rate, steps):
    """A loss that does not move stops the run at the second evaluation."""
    stopping = EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=1e-4)
    changes = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}
    trainer = trained(tmp_path, stopping, steps=4, learning_rate=rate, **changes)
    assert trainer.state.global_step == steps
    assert trainer.state.best_metric == min(line.get("eval_loss", 99) for line in trainer.state.log_history)


def test_a_best_metric_that_no_evaluation_has_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match=r"metric_for_best_model='bleu'(.|\n)*eval_loss"):
        trained(tmp_path, None, eval_strategy="steps", metric_for_best_model="bleu")
