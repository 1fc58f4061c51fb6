"""Audits of a plain ``GRPOTrainer``: silent if it is right; planted faults are found."""

import datasets
import pytest
import torch
import transformers
import trl
from pick import first
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl_options import random_reward

from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.verdict import STRONG_VERDICTS, Verdict
from truing.errors import ProvenError, RecipeError
from truing.integrations.trl import audit


class Forgetful(transformers.TrainerCallback):
    """Clears the gradient of a layer."""

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        for name, weight in model.named_parameters():
            if ".layers.0." in name and weight.requires_grad:
                weight.grad.zero_()


@pytest.fixture
def trainer(folder, config):
    def made(model=folder, peft_config=None, **changes):
        own = {
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 6,
            "beta": 0.0,
        }
        asked = [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(16)]
        return trl.GRPOTrainer(
            model=str(model),
            args=trl.GRPOConfig(**config | own | changes),
            reward_funcs=[random_reward],
            train_dataset=datasets.Dataset.from_list(asked),
            peft_config=peft_config,
        )

    return made


def fired(made, strong=True):
    return [
        code
        for code, found in made.diagnosis.findings.items()
        if not strong or found[0].claim.verdict in STRONG_VERDICTS
    ]


HEALTHY = {
    "default": {},
    "kl": {"beta": 0.1, "loss_type": "grpo"},
    "accumulated": {"gradient_accumulation_steps": 2},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "two optimizer steps": {"num_iterations": 2, "learning_rate": 1e-2},
    "temperature": {"temperature": 0.7},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {"importance_sampling_level": "sequence", "loss_type": "grpo", "num_iterations": 2},
    "entropy": {"entropy_coef": 0.01},
    "two generations a step": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 1,
        "loss_type": "grpo",
    },
    "steps across generations": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 3,
        "loss_type": "grpo",
        "max_steps": 4,
    },
    "cispo of sequences": {
        "importance_sampling_level": "sequence",
        "loss_type": "cispo",
        "num_iterations": 2,
        "learning_rate": 1e-2,
    },
    "luspo": {
        "importance_sampling_level": "sequence",
        "loss_type": "luspo",
        "num_iterations": 2,
        "learning_rate": 1e-2,
    },
    "two optimizer steps of parts": {
        "steps_per_generation": 2,
        "per_device_train_batch_size": 4,
        "loss_type": "grpo",
    },
}


@pytest.mark.parametrize("name", first(4, HEALTHY))
def test_a_healthy_trainer_is_left_alone_and_its_gradient_is_checked(trainer, name):
    trl_trainer = trainer(**HEALTHY[name])
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == []
    clean = {each.code for each in result.diagnosis.results() if each.verdict is Verdict.CLEAN}
    # a bonus on the entropy moves no log-probability
    whole = set() if "entropy_coef" in HEALTHY[name] else {"OPT009"}
    assert {"MSK001", "MSK003", "ADV001", "OPT001", "TOK001", "RWD002", "SMP009"} | whole <= clean
    assert "not checked: " in str(result)


def test_before_trl_1_14_the_tokenizer_has_the_only_stop(trainer):
    trl_trainer = trainer()
    assert set(trl_trainer.eos_token_ids) == set(audit(trl_trainer).setup.stop_ids)
    del trl_trainer.eos_token_ids
    assert audit(trl_trainer).setup.stop_ids == (257,)


COARSE = {
    "kl": {"beta": 0.1, "num_iterations": 2},
    "accumulated": {
        "gradient_accumulation_steps": 4,
        "per_device_train_batch_size": 2,
        "gradient_checkpointing": True,
    },
}


@pytest.mark.integration
@pytest.mark.parametrize("name", first(2, COARSE))
def test_a_healthy_trainer_in_another_precision_is_left_alone(trainer, wide_folder, coarse, name):
    trl_trainer = trainer(model=wide_folder, **coarse | COARSE[name])
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result, strong=False) == []
    clean = {each.code for each in result.diagnosis.results() if each.verdict is Verdict.CLEAN}
    assert {"SMP005", "SMP009", "OPT009", "MSK003"} <= clean


def of_batch(change):
    def wrap(real):
        def generate(self, inputs):
            batch = real(self, inputs)
            change(batch)
            return batch

        return generate

    return "_generate_and_score_completions", wrap


def advantages_moved(batch):
    batch["advantages"] = batch["advantages"].roll(1)


def ids_changed(batch):
    batch["completion_ids"] = batch["completion_ids"].clone()
    batch["completion_ids"][:, 0] = (batch["completion_ids"][:, 0] + 1) % 200


def old_filled_with_zeros(batch):
    batch["old_per_token_logps"] = torch.zeros_like(batch["completion_ids"]).float()


def mask_begins_late(batch):
    batch["completion_mask"] = batch["completion_mask"].clone()
    batch["completion_mask"][:, 0] = 0


def half(real):
    return lambda self, model, inputs: 0.5 * real(self, model, inputs)


def turned(real):
    return lambda self, model, inputs: -real(self, model, inputs)


def rolled_in_rows(real):
    def scored(self, *args, **kwargs):
        logprob, *others = real(self, *args, **kwargs)
        return logprob.roll(1, 1), *others

    return scored


def rewards_moved(real):
    return lambda self, *lists: real(self, *lists).flip(0)


PLANTED = {
    "advantages of other rows": (*of_batch(advantages_moved), "ADV001"),
    "ids changed": (*of_batch(ids_changed), "TOK001"),
    "old log-probabilities of zero": (*of_batch(old_filled_with_zeros), "RAT001"),
    "first tokens masked": (*of_batch(mask_begins_late), "MSK002"),
    "half the loss": ("_compute_loss", half, "MSK003"),
    "the loss turned": ("_compute_loss", turned, "MSK003"),
    "log-probabilities a token too late": ("_get_per_token_logps_and_entropies", rolled_in_rows, "SMP005"),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", first(8, PLANTED))
def test_what_is_planted_is_proven_in_the_first_step_and_named(trainer, monkeypatch, name):
    method, wrap, code = PLANTED[name]
    monkeypatch.setattr(trl.GRPOTrainer, method, wrap(getattr(trl.GRPOTrainer, method)))
    trl_trainer = trainer(max_steps=1)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result)[0] == code or code in fired(result)
    assert result.diagnosis.findings[code][0].step == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", first(2, PLANTED))
def test_what_is_planted_is_proven_in_another_precision_too(trainer, wide_folder, coarse, monkeypatch, name):
    method, wrap, code = PLANTED[name]
    monkeypatch.setattr(trl.GRPOTrainer, method, wrap(getattr(trl.GRPOTrainer, method)))
    trl_trainer = trainer(model=wide_folder, max_steps=1, **coarse)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert code in fired(result)


@pytest.mark.integration
def test_a_layer_whose_gradient_is_lost_is_found_in_another_precision_too(trainer, wide_folder, coarse):
    trl_trainer = trainer(model=wide_folder, max_steps=1, **coarse)
    trl_trainer.add_callback(Forgetful())
    result = audit(trl_trainer)
    trl_trainer.train()
    assert "OPT009" in fired(result, strong=False)


@pytest.mark.slow
def test_weights_in_another_precision_than_the_first_are_no_float32(trainer):
    trl_trainer = trainer(bf16=False, model_init_kwargs={"dtype": "bfloat16"}, cast_lm_head_to_fp32=True)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result, strong=False) == []
    assert result.history.past[0].facts["plain"]["device"] == "cpu, torch.bfloat16"


def test_rewards_of_other_rows_are_suspected(trainer, monkeypatch):
    monkeypatch.setattr(
        trl.GRPOTrainer, "_calculate_rewards", rewards_moved(trl.GRPOTrainer._calculate_rewards)
    )
    trl_trainer = trainer(max_steps=1)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert "RWD002" in fired(result, strong=False)


@pytest.mark.integration
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_layer_whose_gradient_is_lost_on_its_way_is_proven(trainer, accumulated):
    trl_trainer = trainer(gradient_accumulation_steps=accumulated)
    trl_trainer.add_callback(Forgetful())
    result = audit(trl_trainer)
    trl_trainer.train()
    assert "OPT009" in fired(result)


def test_an_optimiser_that_does_nothing_ends_the_run_where_that_is_asked(trainer):
    trl_trainer = trainer()
    trl_trainer.create_optimizer()
    trl_trainer.optimizer.step = lambda *args, **kwargs: None
    audit(trl_trainer, stop=True)
    with pytest.raises(ProvenError, match="OPT001"):
        trl_trainer.train()


def test_a_weight_that_the_optimiser_does_not_hold_is_proven_to_stand_still(trainer):
    trl_trainer = trainer(max_steps=1)
    trl_trainer.create_optimizer()
    group = trl_trainer.optimizer.param_groups[0]
    group["params"] = group["params"][1:]
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result)[0] == "OPT001"
    assert "did not move, such as" in result.diagnosis.findings["OPT001"][0].claim.what


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


@pytest.mark.integration
@pytest.mark.parametrize("unfair", [{"top_p": 0.5}, {"top_k": 50}])
def test_draws_by_other_parameters_than_scores_are_reported_with_their_e_value(trainer, unfair, monkeypatch):
    monkeypatch.setattr("truing.integrations.trl.grpo.AUDIT_SHARE", 1)
    trl_trainer = trainer(max_steps=8, max_completion_length=40, learning_rate=1e-6, **unfair)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == ["SMP007"]
    (claim,) = {each.claim.verdict for each in result.diagnosis.findings["SMP007"]}
    assert claim is Verdict.EVIDENCE


@pytest.mark.integration
@pytest.mark.parametrize("every", [1, 2])
def test_a_sampler_with_older_weights_is_proven_by_its_draws(trainer, monkeypatch, every):
    """``every`` = 2: half of the tensors are synced."""
    real, kept = trl.GRPOTrainer._generate_single_turn, {}

    def stale(self, *args, **kwargs):
        now = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        old = kept.setdefault("start", now)
        with torch.no_grad():
            for name in list(now)[::every]:
                self.model.get_parameter(name).copy_(old[name])
            drawn = real(self, *args, **kwargs)
            for name, weight in now.items():
                self.model.get_parameter(name).copy_(weight)
        return drawn

    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", stale)
    trl_trainer = trainer(max_steps=6, learning_rate=3e-2, max_completion_length=24)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert "SMP009" in fired(result)
    assert set(fired(result)) <= {"SMP007", "SMP009"}


def test_a_sampler_with_numbers_of_its_own_is_not_replayed(trainer, monkeypatch):
    real = trl.GRPOTrainer._generate_single_turn

    def otherwise(self, *args, **kwargs):
        torch.rand(1)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", otherwise)
    trl_trainer = trainer()
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == []
    assert "SMP009" not in {each.code for each in result.diagnosis.results()}


@pytest.mark.integration
def test_fair_draws_have_no_evidence(trainer, monkeypatch):
    monkeypatch.setattr("truing.integrations.trl.grpo.AUDIT_SHARE", 1)
    trl_trainer = trainer(max_steps=8, max_completion_length=40, temperature=0.8, learning_rate=1e-6)
    result = audit(trl_trainer)
    trl_trainer.train()
    assert fired(result) == []
    assert sum(past.facts["audit"]["tokens"] for past in result.history.past) > 2000


def test_what_was_kept_is_judged_again_as_it_was(trainer, monkeypatch, tmp_path):
    method, wrap, code = PLANTED["half the loss"]
    monkeypatch.setattr(trl.GRPOTrainer, method, wrap(getattr(trl.GRPOTrainer, method)))
    trl_trainer = trainer(beta=0.1)
    result = audit(trl_trainer, out=tmp_path / "kept")
    trl_trainer.train()
    again = diagnose_run(tmp_path / "kept")
    assert report_facts(again) == report_facts(result.diagnosis)
    assert code in again.findings


@pytest.mark.parametrize("kind", [object, AsyncGRPOTrainer])
def test_another_trainer_is_refused_and_told_what_is_not_checked(kind):
    with pytest.raises(RecipeError, match="cannot be audited") as refused:
        audit(object.__new__(kind))
    assert "samples, loss, gradient and weights are not checked" in str(refused.value)
