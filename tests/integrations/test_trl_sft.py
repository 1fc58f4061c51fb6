"""Audits of a plain ``SFTTrainer``: silent if it is right; planted faults are found."""

import pkgutil

import datasets
import pytest
import torch
import trl
from pick import first

from truing.doctor.diagnosis import ranked
from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.errors import RecordError
from truing.integrations.trl import audit

END = 257
"""The tiny model's stop."""


def said(role, content):
    return {"role": role, "content": content}


PAIRS = [
    {
        "prompt": [said("user", f"what is {i} and {i}?")],
        "completion": [said("assistant", f"it is {'x' * (i % 5)}{2 * i}")],
    }
    for i in range(24)
]
TALKS = [{"messages": [*pair["prompt"], *pair["completion"]]} for pair in PAIRS]
PLAIN = [{"prompt": f"{i} and {i} is ", "completion": f"{2 * i} and {'x' * (i % 3)}"} for i in range(24)]
TEXTS = [{"text": f"{i} and {i} is {2 * i} {'x' * (i % 3)}"} for i in range(24)]


@pytest.fixture
def trainer(folder, config):
    def made(rows=PAIRS, collator=None, model=folder, peft_config=None, **changes):
        own = {"per_device_train_batch_size": 4}
        return trl.SFTTrainer(
            model=str(model),
            peft_config=peft_config,
            args=trl.SFTConfig(**config | own | changes),
            train_dataset=datasets.Dataset.from_list(rows),
            data_collator=collator,
        )

    return made


def results(found):
    return {each.code: each.verdict for each in found.diagnosis.results()}


def fired(found):
    return {code: verdict for code, verdict in results(found).items() if verdict in FINDING_VERDICTS}


HEALTHY = {
    "completions": {},
    "talks": {"rows": TALKS},
    "plain completions": {"rows": PLAIN},
    "texts": {"rows": TEXTS},
    "accumulated": {"gradient_accumulation_steps": 3},
    "cut": {"max_length": 48},
    "everything": {"completion_only_loss": False},
    "packed": {"packing": True, "max_length": 64},
    "without padding": {"padding_free": True, "max_length": None},
    "weighed by probability": {"loss_type": "dft", "gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("name", first(3, HEALTHY))
def test_a_healthy_trainer_is_left_alone_and_its_gradient_is_checked(trainer, name):
    trl_trainer = trainer(**HEALTHY[name])
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == {}
    clean = {code for code, verdict in results(result).items() if verdict is Verdict.CLEAN}
    assert {"MSK007", "TOK001", "OPT001", "OPT002", "OPT009", "SMP005"} <= clean
    assert ("MSK001" in clean) == (name != "packed")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["accumulated", "packed"])
def test_a_healthy_trainer_in_another_precision_is_left_alone(trainer, wide_folder, coarse, name):
    trl_trainer = trainer(model=wide_folder, **coarse | HEALTHY[name])
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == {}
    assert {"SMP005", "OPT009"} <= {
        code for code, verdict in results(result).items() if verdict is Verdict.CLEAN
    }


def changed(change):
    """A collator that spoils its batches."""

    def wrap(real):
        def collate(self, examples):
            batch = real(self, examples)
            change(batch)
            return batch

        return collate

    return "trl.trainer.sft_trainer.DataCollatorForLanguageModeling.torch_call", wrap


def everything(batch):
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)


def stops_lost(batch):
    batch["labels"][batch["labels"] == END] = -100  # as where pads are found by their id, and pad is eos


def one_late(batch):
    learned = batch["labels"] != -100
    batch["labels"] = batch["labels"].masked_fill(learned & ~learned.roll(1, 1), -100)


def shifted(batch):
    batch["labels"] = batch["labels"].roll(-1, 1)


def ids_changed(batch):
    batch["input_ids"][:, 3] += 1


def half(real):
    return lambda self, *args, **kwargs: 0.5 * real(self, *args, **kwargs)


def each_its_own_mean(real):
    def lost(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return real(self, model, inputs) / 2

    return lost


def run_on(batch):
    batch["position_ids"] = torch.arange(batch["position_ids"].shape[1])[None]


LOSS = "trl.SFTTrainer.compute_loss"

PLANTED = {
    "loss on prompts": (*changed(everything), "MSK001"),
    "stops are taken for pads": (*changed(stops_lost), "MSK008"),
    "labels begin one late": (*changed(one_late), "MSK002"),
    "labels shifted": (*changed(shifted), "TOK001"),
    "ids changed": (*changed(ids_changed), "TOK001"),
    "half the loss": (LOSS, half, "MSK007"),
    "micro-batches averaged": (LOSS, each_its_own_mean, "MSK007"),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", first(6, PLANTED))
def test_what_is_planted_is_proven_in_the_first_step_and_named_first(trainer, monkeypatch, name):
    target, wrap, code = PLANTED[name]
    owner, method = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    monkeypatch.setattr(owner, method, wrap(getattr(owner, method)))
    trl_trainer = trainer(max_steps=1, gradient_accumulation_steps=2)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert results(result)[code] is Verdict.PROVEN
    assert result.diagnosis.findings[code][0].step == 0
    assert ranked(each[0] for each in result.diagnosis.findings.values())[0].code == code


@pytest.mark.slow
@pytest.mark.parametrize("name", first(2, PLANTED))
def test_what_is_planted_is_proven_in_another_precision_too(trainer, wide_folder, coarse, monkeypatch, name):
    target, wrap, code = PLANTED[name]
    owner, method = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    monkeypatch.setattr(owner, method, wrap(getattr(owner, method)))
    own = {"max_steps": 1, "gradient_accumulation_steps": 2}
    trl_trainer = trainer(model=wide_folder, **coarse | own)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert results(result)[code] is Verdict.PROVEN


@pytest.mark.integration
@pytest.mark.parametrize("precision", [{}, {"bf16": True, "model_init_kwargs": {}}])
def test_packed_documents_that_attend_to_each_other_are_found(trainer, wide_folder, monkeypatch, precision):
    target, wrap = changed(run_on)
    owner, method = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    monkeypatch.setattr(owner, method, wrap(getattr(owner, method)))
    own = {"max_steps": 1, "packing": True, "max_length": 128, "per_device_train_batch_size": 1}
    trl_trainer = trainer(model=wide_folder, **own | precision)
    result = audit(trl_trainer)
    trl_trainer.train()
    # the first document is as it should be, and bfloat16 asks that most tokens are far off
    assert results(result)["SMP005"] is (Verdict.SUSPECT if precision else Verdict.PROVEN)


@pytest.mark.integration
@pytest.mark.parametrize("precision", [{}, {"bf16": True, "model_init_kwargs": {}}])
def test_noise_that_is_declared_is_not_taken_for_a_fault(trainer, wide_folder, precision):
    trl_trainer = trainer(model=wide_folder, neftune_noise_alpha=5, **precision)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == {}
    assert results(result)["SMP005"] is Verdict.CLEAN


@pytest.mark.slow
def test_auditing_changes_nothing(trainer):
    def weights(audited):
        torch.manual_seed(0)
        trl_trainer = trainer()
        if audited:
            audit(trl_trainer)
        trl_trainer.train()
        return {name: weight.detach().clone() for name, weight in trl_trainer.model.named_parameters()}

    plain, watched = weights(False), weights(True)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_what_was_kept_is_judged_again_as_it_was(trainer, monkeypatch, tmp_path):
    target, wrap, code = PLANTED["loss on prompts"]
    owner, method = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    monkeypatch.setattr(owner, method, wrap(getattr(owner, method)))
    trl_trainer, folder = trainer(), tmp_path / "kept"
    result = audit(trl_trainer, out=folder)
    trl_trainer.train()
    again = diagnose_run(folder)
    assert report_facts(again) == report_facts(result.diagnosis)
    assert again.findings[code][0].excerpt
    with pytest.raises(RecordError, match="folder of its own"):
        audit(trainer(), out=folder)


def test_what_sharded_weights_leave_unchecked_is_named(trainer, monkeypatch):
    monkeypatch.setattr("truing.integrations.trl.audited_trainer.holds_whole_weights", lambda _: False)
    trl_trainer = trainer()
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == {}
    unchecked = {code for code, verdict in results(result).items() if verdict is Verdict.NOT_CHECKED}
    assert {"OPT001", "OPT002", "OPT003", "OPT008", "OPT009", "OPT010", "SMP005"} <= unchecked
    assert results(result)["MSK007"] is Verdict.CLEAN
    assert "not checked: the optimizer's gradient, the weights" in str(result)
