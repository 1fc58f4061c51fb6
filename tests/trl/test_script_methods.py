"""Methods and attributes that scripts use around a training: those of transformers' trainer, or an error."""

import json

import huggingface_hub
import pytest
from transformers import ProgressCallback, TrainerCallback

from truing.errors import DataError, InvalidValueError, RecordError
from truing.trl import GRPOConfig, GRPOTrainer, RichProgressCallback, SFTConfig, SFTTrainer

TEXT = [{"text": f"{word} follows"} for word in ("one", "two", "three", "four")]
PROMPTS = ["Say one: ", "Say two: "]


def score(completions, **columns):
    return [0.0 for _ in completions]


def sft(tmp_path, trainer=SFTTrainer, callbacks=None, **arguments):
    common = {"max_steps": 1, "use_cpu": True, "disable_tqdm": True, "bf16": False}
    args = SFTConfig(str(tmp_path / "out"), **common, **arguments)
    return trainer("tiny", args, train_dataset=TEXT, callbacks=callbacks)


def test_metrics_and_state_become_files(tmp_path, capsys):
    trainer = sft(tmp_path)
    trainer.log_metrics("train", {"loss": 1.5, "a": 2.0})
    assert capsys.readouterr().out == "***** train metrics *****\n  a    = 2.0\n  loss = 1.5\n"
    trainer.save_metrics("train", {"loss": 1.5})
    trainer.save_metrics("eval", {"eval_loss": 2.5})
    trainer.save_state()
    read = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    assert read["train_results"] == {"loss": 1.5}
    assert read["all_results"] == {"loss": 1.5, "eval_loss": 2.5}
    assert read["trainer_state"]["log_history"] == []
    assert trainer.is_world_process_zero()
    assert trainer.train_dataset is TEXT


def test_callbacks_are_taken_out_by_object_or_class(tmp_path):
    class Mine(TrainerCallback):
        pass

    one, two = Mine(), TrainerCallback()
    trainer = sft(tmp_path, callbacks=[one, two, ProgressCallback, RichProgressCallback])
    trainer.remove_callback(two)
    assert trainer.pop_callback(Mine) is one
    assert trainer.pop_callback(Mine) is None
    assert [type(each) for each in trainer._state.callbacks] == [ProgressCallback, RichProgressCallback]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("predict", "evaluate\\(\\) returns"),
        ("tokenizer", "processing_class"),
        ("compute_loss", "does not run transformers' Trainer"),
        ("training_stepp", "has no 'training_stepp'$"),
    ],
)
def test_other_attributes_are_named(tmp_path, name, text):
    with pytest.raises(AttributeError, match=text):
        getattr(sft(tmp_path), name)


def test_evaluate_needs_the_data_set_of_the_trainer(tmp_path):
    trainer = GRPOTrainer("tiny", score, GRPOConfig(str(tmp_path), use_cpu=True), PROMPTS)
    for dataset, got in ((None, "none"), (PROMPTS, "another data set")):
        with pytest.raises(RecordError, match=f"got: {got}(.|\n)*pass it as eval_dataset"):
            trainer.evaluate(dataset)


def test_a_data_set_may_be_missing_where_an_environment_makes_the_prompts(tmp_path):
    class Makes:
        def reset(self, **columns):
            return "Go!"

        def get_reward(self):
            return 1.0

    def trainer(**arguments):
        args = GRPOConfig(str(tmp_path), use_cpu=True, num_generations=2, **arguments)
        return GRPOTrainer("tiny", args=args, environment_factory=Makes)

    tasks = trainer(max_steps=3, per_device_train_batch_size=4).env.tasks("train")
    assert [task.messages[-1]["content"] for task in tasks] == ["Go!"] * 6
    with pytest.raises(DataError, match="set max_steps"):
        trainer()
    with pytest.raises(DataError, match="there is no train_dataset"):
        GRPOTrainer("tiny", score, GRPOConfig(str(tmp_path), use_cpu=True))


def test_what_cannot_be_resumed_is_named(tmp_path):
    theirs = tmp_path / "checkpoint-1"
    theirs.mkdir()  # without Truing's pointer: TRL wrote it
    with pytest.raises(RecordError, match=r"True, for the newest run(.|\n)*that TRL wrote cannot be resumed"):
        sft(tmp_path).train(resume_from_checkpoint=str(theirs))


@pytest.mark.integration
def test_a_trainer_trains_once(tmp_path):
    trainer = sft(tmp_path)
    trainer.train()
    with pytest.raises(RecordError, match="start again from the first weights"):
        trainer.train()


def test_errors_of_the_hub_are_named(tmp_path, monkeypatch):
    def create_repo(*names, **options):
        raise huggingface_hub.errors.OfflineModeIsEnabled("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    trainer = sft(tmp_path, push_to_hub=True)
    with pytest.raises(RecordError, match=r"the hub does not take the model(.|\n)*no network"):
        trainer.train()


@pytest.mark.parametrize("name", ["compute_loss", "training_step", "log", "_prepare_dataset"])
def test_a_subclass_overrides_no_method_that_is_never_called(tmp_path, name):
    kind = type("Mine", (SFTTrainer,), {name: lambda self, *given: 0})
    with pytest.raises(InvalidValueError, match=f"Mine.* overrides(.|\n)*got: {name}\n"):
        sft(tmp_path, type("MineToo", (kind,), {}) if name == "log" else kind)


def test_a_subclass_may_have_methods_of_its_own(tmp_path):
    kind = type("Mine", (SFTTrainer,), {"helper": lambda self: 1, "save_model": lambda self: 2})
    trainer = sft(tmp_path, kind)
    assert (trainer.helper(), trainer.save_model()) == (1, 2)


def test_what_the_recipe_is_made_of_does_not_change(tmp_path):
    trainer = sft(tmp_path)
    for name in ("train_dataset", "args", "optimizer"):
        with pytest.raises(InvalidValueError, match=f"{name} of a SFTTrainer cannot be changed"):
            setattr(trainer, name, None)
    trainer.args.learning_rate = 1.0
    with pytest.raises(InvalidValueError, match=r"got: learning_rate=1\.0"):
        trainer.train()


def test_a_model_that_is_not_loaded_yet_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match="before the training, which loads it"):
        sft(tmp_path).model.config  # noqa: B018 — as a script reads it
