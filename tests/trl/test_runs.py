"""Whole runs of TRL's trainers on the tiny model: tools, environments, callbacks, evaluation, model card."""

import json
import re
import runpy
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from datasets import Dataset
from folders import ROOT
from peft import LoraConfig, PeftModel
from recorded import samples_of
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, TrainerState
from transformers.trainer_utils import get_last_checkpoint

from truing.models.builtin import ensure_built
from truing.record import RunReader
from truing.trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer
from truing.trl.card import write_card
from truing.trl.checkpoint_folders import checkpoint_of

pytestmark = pytest.mark.integration

SMALL = {
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "max_completion_length": 8,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "num_generations": 2,
    "per_device_train_batch_size": 4,
}


SCRIPTS = sorted((ROOT / "recipes" / "trl").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_scripts_of_the_docs_train(tmp_path, monkeypatch, script):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    trainer = runpy.run_path(str(script))["trainer"]
    assert trainer.state.global_step == trainer.args.max_steps
    assert all(event.kind != "finding" for event in RunReader(trainer.run).events())


def chat(text):
    return [{"role": "user", "content": text}]


def double(number: int) -> int:
    """
    Doubles a number.

    Args:
        number: What to double.
    """
    return 2 * number


class Counter:
    """An environment whose tool counts."""

    def reset(self, start, **columns):
        self.value = start
        return f" [from {start}]"

    def add(self, step: int) -> int:
        """
        Adds to the value.

        Args:
            step: How much.
        """
        self.value += step
        return self.value

    def get_reward(self):
        return float(self.value)


class Watch(TrainerCallback):
    """Records the calls, and stops after the second step."""

    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda args, state, control, **facts: self.called(name, state, control)
        return super().__getattribute__(name)

    def called(self, name, state, control):
        self.calls.append((name, state.global_step))
        if name == "on_step_end" and state.global_step == 2:
            control.should_training_stop = True


def quarter(prompts, completions, start, environments, log_extra, log_metric, **columns):
    assert all(
        prompt[-1]["content"].endswith(f"[from {n}]") for prompt, n in zip(prompts, start, strict=True)
    )
    assert [each.value for each in environments] == start
    assert all(messages[0]["role"] == "assistant" for messages in completions)
    log_extra("start", start)
    log_metric("quarters", 0.25)
    return [None if n == 1 else 0.25 * (index % 2) for index, n in enumerate(start)]


def test_tools_environments_callbacks_and_evaluation(tmp_path):
    folder = ensure_built("tiny")
    model = AutoModelForCausalLM.from_pretrained(folder)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    watch = Watch()
    trainer = GRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=quarter,
        args=GRPOConfig(str(tmp_path / "out"), max_steps=4, eval_strategy="steps", eval_steps=1, **SMALL),
        train_dataset=Dataset.from_list([{"prompt": chat(f"Count {i}"), "start": i} for i in range(4)]),
        eval_dataset=[{"prompt": chat(f"Count down {i}"), "start": i} for i in range(3)],
        callbacks=[watch],
        tools=[double],
        environment_factory=Counter,
    )
    assert [tool.name for tool in trainer.env.tasks("train")[0].tools] == ["double", "add"]
    untrained = trainer.evaluate()
    assert untrained["eval_reward_low"] <= untrained["eval_reward"] <= untrained["eval_reward_high"]
    assert untrained["eval_rewards/Counter/mean"] == 1.0  # of 0, 1 and 2
    output = trainer.train()
    assert output.global_step == 2
    assert [name for name, step in watch.calls if name.endswith(("begin", "end"))] == [
        "on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_step_begin",
        "on_step_end", "on_epoch_end", "on_train_end",
    ]  # fmt: skip
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[0]["learning_rate"] == 1e-3
    assert lines[0]["quarters"] == 0.25
    evaluated = [line for line in trainer.state.log_history if "eval_reward" in line]
    assert [line["step"] for line in evaluated] == [0, 1, 2]
    extra = [json.loads(line) for line in (trainer.run / "log_extra.jsonl").read_text().splitlines()]
    assert {len(line["start"]) for line in extra} >= {4, 6}
    assert any((model.state_dict()[name] != before[name]).any() for name in before)
    recorded = samples_of(RunReader(trainer.run).find_table("grpo", 0))
    assert {row.outcome["environment"] for row in recorded} == {"Counter"}


@pytest.mark.parametrize("special", [False, True])
def test_new_tokens_are_tokens_in_the_data_and_noted_if_an_adapter_does_not_train_them(tmp_path, special):
    path = ensure_built("tiny")
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
    tokenizer.add_tokens(["<plan>"], special_tokens=special)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    args = SFTConfig(str(tmp_path), max_steps=1, use_cpu=True, bf16=False, disable_tqdm=True)
    rows = [{"prompt": chat("1?"), "completion": [{"role": "assistant", "content": "<plan>2"}]}] * 8
    trainer = SFTTrainer(
        model,
        args,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=2, target_modules="all-linear"),
    )
    trainer.train()
    (note,) = trainer.env.notes
    assert note.startswith("untrained embeddings of <plan>: ")
    notes = [event.payload["text"] for event in RunReader(trainer.run).events() if event.kind == "note"]
    assert [text for text in notes if "<plan>" in text] == [note]
    (row, *_) = samples_of(RunReader(trainer.run).find_table("sft", 0))
    assert len(tokenizer) - 1 in row.token_ids.tolist()


def test_the_card_the_adapter_and_the_push(tmp_path, monkeypatch, capsys):
    calls = []

    class FakeHub:
        def __init__(self, token):
            calls.append(token)

        def create_repo(self, name, private, exist_ok):
            calls.append(f"me/{name}")
            return type("Repo", (), {"repo_id": f"me/{name}"})

        def upload_folder(self, repo_id, folder_path, commit_message, revision, ignore_patterns):
            every = [str(path.relative_to(folder_path)) for path in folder_path.rglob("*") if path.is_file()]
            kept = huggingface_hub.utils.filter_repo_objects(every, ignore_patterns=ignore_patterns)
            calls.append((repo_id, sorted(kept)))
            return "https://huggingface.co/commit"

    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    trainer = GRPOTrainer(
        model="tiny",
        reward_funcs=lambda completions, **_: [len(text) / 8 for text in completions],
        args=GRPOConfig(
            str(tmp_path / "out"),
            max_steps=1,
            eval_strategy="steps",
            eval_on_start=True,
            push_to_hub=True,
            hub_token="secret",
            **SMALL,
        ),
        train_dataset=["Say one: ", "Say two: "],
        eval_dataset=["Say three: ", "Say four: "],
        peft_config=LoraConfig(r=2, target_modules="all-linear"),
    )
    trainer.train()
    assert isinstance(trainer.model, PeftModel)
    assert calls[:2] == ["secret", "me/out"]  # the repository is made before the training
    assert trainer.hub_model_id == "me/out"
    repository, files = calls[-1]
    assert repository == "me/out"
    assert {"README.md", "adapter_config.json", "adapter_model.safetensors"} <= set(files)
    assert not [name for name in files if "/" in name or name in ("untrained.toml", "prompt.jinja")]
    end = capsys.readouterr().err.splitlines()[-3:]
    assert end[0] == f"run: {trainer.run}"
    assert re.fullmatch(rf"doctor: 1 step judged, no rule found anything.*truing check {trainer.run}", end[1])
    assert re.fullmatch(rf"board: .*truing board {trainer.run}", end[2])
    trainer.save_model(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "README.md").exists()  # peft's, with empty sections
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| base | " in card
    assert "gain of after_grpo, paired" in card
    assert "None has a finding" in card
    assert "secret" not in card
    assert str(tmp_path) not in card
    assert "base_model" not in card  # the hub refuses a name that is no model there
    named = write_card(trainer.run, tmp_path / "out", "name", "owner/model", "1").read_text()
    assert "base_model: owner/model\ntags:" in named
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(ensure_built("tiny")).chat_template


def test_a_stopped_script_resumes(tmp_path):
    saved = []

    class Saves(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            saved.append(sorted(path.name for path in folder.iterdir()))

    def trainer(steps):
        return RLOOTrainer(
            model="tiny",
            reward_funcs=lambda completions, **_: [len(text) / 8 for text in completions],
            args=RLOOConfig(str(tmp_path / "out"), max_steps=2, save_steps=1, **SMALL),
            train_dataset=["Say one: ", "Say two: "],
            callbacks=[StopAfter(steps), Saves()],
        )

    out = tmp_path / "out"
    first = trainer(1)
    assert first.train().global_step == 1
    assert saved == [["trainer_state.json", "truing.json"]]
    second, last = trainer(2), get_last_checkpoint(out)  # as scripts do
    assert Path(last).name == "checkpoint-1"
    assert TrainerState.load_from_json(f"{last}/trainer_state.json").global_step == 1
    assert second.train(resume_from_checkpoint=last).global_step == 2
    assert first.run == second.run
    assert Path(get_last_checkpoint(out)).name == "checkpoint-2"
    assert [row.step for row in RunReader(first.run).steps()] == [0, 1]
    whole = trainer(2)
    whole.train()
    assert whole.run.name == "truing-2"
    assert checkpoint_of(get_last_checkpoint(out)) == str(whole.run / "checkpoints" / "rloo-000002")
    (out / "checkpoint-1").mkdir(exist_ok=True)
    (out / "checkpoint-1" / "truing.json").write_text('{"run": "truing", "checkpoint": "rloo-000001"}')
    back = trainer(2)  # an earlier checkpoint: the run goes back to it, and trains on
    assert back.train(resume_from_checkpoint=str(out / "checkpoint-1")).global_step == 2
    assert back.run == first.run
    pairs = zip(whole.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


class StopAfter(TrainerCallback):
    """Stops after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.steps
        return control


def test_sft_trains_each_turn_of_a_conversation(tmp_path):
    turns = [
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "b?"},
        {"role": "assistant", "content": "second"},
    ]
    args = SFTConfig(
        str(tmp_path / "out"),
        assistant_only_loss=True,
        max_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        per_device_train_batch_size=2,
    )
    trainer = SFTTrainer("tiny", args, train_dataset=[{"messages": turns}, {"messages": turns[:2]}])
    trainer.train()
    texts = set()
    for row in samples_of(RunReader(trainer.run).find_table("sft", 0)):
        texts.add(bytes(i for i in row.token_ids[row.supervised_mask].tolist() if i < 256))
    assert texts == {b"firstsecond", b"first"}
