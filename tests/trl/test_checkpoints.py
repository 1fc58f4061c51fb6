"""Checkpoints of a TRL script: it is made longer, goes back, is finished, and ends with the best model."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from truing.errors import RecipeError, RecordError
from truing.record import RunReader
from truing.trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

SMALL = {
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "max_completion_length": 8,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "num_generations": 2,
    "per_device_train_batch_size": 4,
    "lr_scheduler_type": "constant",
}


def score(completions, **_):
    return [len(text) / 8 for text in completions]


def grpo(folder, steps, **changes):
    return GRPOTrainer(
        model="tiny",
        reward_funcs=score,
        args=GRPOConfig(str(folder), max_steps=steps, **{**SMALL, **changes}),
        train_dataset=["Say one: ", "Say two: "],
        eval_dataset=["Say three: ", "Say four: ", "Say five: ", "Say six: "],
    )


ROWS = [{"prompt": f"{n} + 1 = ", "completion": str(n + 1)} for n in range(12)]


def sft(folder, steps, **changes):
    names = ("use_cpu", "bf16", "disable_tqdm", "logging_steps", "lr_scheduler_type")
    settings = {name: SMALL[name] for name in names}
    args = SFTConfig(str(folder), max_steps=steps, per_device_train_batch_size=4, **{**settings, **changes})
    return SFTTrainer("tiny", args, train_dataset=ROWS[:8], eval_dataset=ROWS[8:])


def same_weights(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def numbers(history):
    """The lines of a log without seconds."""
    return [
        {k: v for k, v in line.items() if not k.endswith(("time", "runtime", "second"))} for line in history
    ]


@pytest.mark.integration
def test_more_max_steps_continue_a_finished_script_and_it_says_when_it_is_finished(tmp_path):
    changes = {"eval_strategy": "steps", "eval_steps": 2}
    grpo(tmp_path / "out", 2, **changes).train()
    longer = grpo(tmp_path / "out", 4, **changes)
    result = longer.train(resume_from_checkpoint=True)
    whole = grpo(tmp_path / "whole", 4, **changes)
    planned = whole.train()
    assert (longer.run.name, result.global_step) == ("truing", 4)
    assert same_weights(longer.model, whole.model)
    assert result.training_loss == planned.training_loss
    assert numbers(longer.state.log_history) == numbers(whole.state.log_history)

    again = grpo(tmp_path / "out", 4, **changes)
    finished = again.train(resume_from_checkpoint=True)
    assert (finished.global_step, finished.training_loss) == (4, planned.training_loss)
    assert again.state.epoch == whole.state.epoch
    assert same_weights(again.model, whole.model)


@pytest.mark.integration
def test_another_argument_is_named_as_the_script_has_it(tmp_path):
    schedule = {"lr_scheduler_type": "constant_with_warmup"}
    sft(tmp_path, 1, warmup_steps=1, **schedule).train()
    with pytest.raises(RecordError, match=r"SFTConfig: warmup_steps \(.*\) differs") as error:
        sft(tmp_path, 4, warmup_steps=0.5, **schedule).train(resume_from_checkpoint=True)
    assert "recipe.toml" not in error.value.remedy


@pytest.mark.integration
def test_a_script_continues_from_a_checkpoint_by_its_path(tmp_path):
    whole = sft(tmp_path, 3, save_steps=1)
    whole.train()
    path = whole.run / "checkpoints" / "sft-000001"
    again = sft(tmp_path, 3, save_steps=1)
    assert again.train(resume_from_checkpoint=str(path)).global_step == 3
    assert again.run == whole.run
    assert same_weights(again.model, whole.model)
    assert [row.step for row in RunReader(whole.run / "abandoned/sft-after-1").steps()] == [1, 2]


@pytest.mark.integration
def test_the_best_model_is_loaded_at_the_end(tmp_path):
    """With a rate that destroys the model, the first evaluation is the best."""
    changes = {"eval_strategy": "steps", "eval_steps": 1, "save_total_limit": 1}
    trainer = sft(tmp_path / "out", 4, learning_rate=3.0, load_best_model_at_end=True, **changes)
    trainer.train()
    losses = {
        event.payload["step"]: event.payload
        for event in RunReader(trainer.run).events()
        if event.kind == "eval_loss"
    }
    (found,) = [event.payload for event in RunReader(trainer.run).events() if event.kind == "best"]
    chosen = min((step for step in losses if step), key=lambda step: losses[step]["choosing"])
    assert found["step"] == chosen != 4
    assert found["best"]["mean"] == losses[chosen]["reported"]
    assert found["last"]["mean"] == losses[4]["reported"]
    kept = trainer.run / "checkpoints" / f"sft-00000{chosen}"
    assert trainer.state.best_model_checkpoint == str(kept)
    assert {path.name for path in kept.parent.iterdir()} == {kept.name, "sft-000004", "last"}
    trainer.save_model(str(tmp_path / "saved"))
    assert same_weights(AutoModelForCausalLM.from_pretrained(tmp_path / "saved"), trainer.model)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(losses[chosen]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ("auto", 6)),  # TRL's default of 500 steps is none of a run of 200
        ({"save_steps": 2}, (2, 6)),
        ({"save_strategy": "no"}, (0, 6)),
        ({"save_total_limit": 3}, ("auto", 3)),
        ({"save_total_limit": 1}, ("auto", 1)),
        ({"save_total_limit": 1, "load_best_model_at_end": True, "eval_strategy": "steps"}, ("auto", 2)),
    ],
)
def test_when_and_how_many(tmp_path, arguments, expected):
    recipe = grpo(tmp_path, 4, **arguments).recipe
    assert (recipe.checkpoint_every, recipe.checkpoint_limit) == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "eval_strategy='no'"),
        ({"eval_strategy": "steps", "save_strategy": "no"}, "save_strategy='no'"),
        (
            {"eval_strategy": "steps", "metric_for_best_model": "eval_rewards/score/mean"},
            "metric_for_best_model='rewards/score/mean'",
        ),
    ],
)
def test_a_best_model_that_cannot_be_chosen_is_refused(tmp_path, arguments, text):
    with pytest.raises(RecipeError) as error:
        grpo(tmp_path, 4, load_best_model_at_end=True, **arguments)
    assert text in str(error.value)
