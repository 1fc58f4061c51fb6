"""Audits of a plain ``RLOOTrainer``: silent if it is right; planted faults are found."""

import datasets
import peft
import pytest
import torch
import trl
from pick import first
from trl_options import random_reward

from truing.doctor.verdict import STRONG_VERDICTS, Verdict
from truing.errors import RecipeError
from truing.integrations.trl import audit


@pytest.fixture
def trainer(folder, config):
    def made(peft_config=None, reward=random_reward, **changes):
        own = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6}
        asked = [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(16)]
        return trl.RLOOTrainer(
            model=str(folder),
            args=trl.RLOOConfig(**config | own | changes),
            reward_funcs=[reward],
            train_dataset=datasets.Dataset.from_list(asked),
            peft_config=peft_config,
        )

    return made


def audited(made):
    result = audit(made)
    made.train()
    verdicts = {each.code: each.verdict for each in result.diagnosis.results()}
    return result, [code for code, verdict in verdicts.items() if verdict in STRONG_VERDICTS], verdicts


def half_scored(completions, **_):
    return [None if i % 4 == 1 else reward for i, reward in enumerate(random_reward(completions))]


HEALTHY = {
    "default": {},
    "two optimizer steps": {"num_iterations": 2, "learning_rate": 1e-2},
    "two optimizer steps of parts": {"steps_per_generation": 2, "per_device_train_batch_size": 4},
    "adapter": {"peft_config": peft.LoraConfig(r=4, target_modules="all-linear")},
    "no kl": {"beta": 0.0, "temperature": 0.7},
    "accumulated": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "clipped rewards": {"reward_clip_range": (0.1, 0.6)},
    "normalized": {"normalize_advantages": True},
    "cut answers masked": {"mask_truncated_completions": True},
    "rows without a reward": {"reward": half_scored},
}


@pytest.mark.integration
@pytest.mark.parametrize("name", first(3, HEALTHY))
def test_a_healthy_trainer_is_left_alone_and_its_loss_is_checked(trainer, name):
    _, fired, verdicts = audited(trainer(**HEALTHY[name]))
    assert fired == []
    checked = {"MSK001", "MSK003", "OPT001", "OPT009", "RAT001", "SMP009", "TOK001"}
    checked |= set() if name == "normalized" else {"ADV001"}
    if name == "cut answers masked":  # every answer is cut here, and TRL computes no log-probability of it
        checked -= {"OPT009", "MSK003", "RAT001", "ADV001"}
    assert {verdicts[code] for code in checked} == {Verdict.CLEAN}


def advantages_moved(self, batch):
    batch["advantages"] = batch["advantages"].roll(1)


def old_of_other_rows(self, batch):
    batch["old_logps"] = batch["old_logps"].roll(1)


def advantages_shifted(self, batch):
    batch["advantages"] = batch["advantages"] + 0.1 * torch.arange(len(batch["advantages"]))


def of_batch(change):
    def wrap(real):
        def generate(self, inputs):
            batch = real(self, inputs)
            change(self, batch)
            return batch

        return generate

    return "_generate_and_score_completions", wrap


def mean_over_tokens(real):
    def loss(self, model, inputs):
        return real(self, model, inputs) / inputs["completion_mask"].sum(1).float().mean()

    return loss


PLANTED = {
    "advantages of other rows": (*of_batch(advantages_moved), "ADV001"),
    "a divided loss": ("_compute_loss", mean_over_tokens, "MSK003"),
    "old log-probabilities of other rows": (*of_batch(old_of_other_rows), "MSK003"),
    "shifted advantages": (*of_batch(advantages_shifted), "ADV001"),
}


@pytest.mark.parametrize("name", first(2, PLANTED))
def test_what_is_planted_is_proven_in_the_first_step(trainer, monkeypatch, name):
    method, wrap, code = PLANTED[name]
    monkeypatch.setattr(trl.RLOOTrainer, method, wrap(getattr(trl.RLOOTrainer, method)))
    result, fired, _ = audited(trainer(max_steps=1))
    assert code in fired
    assert result.diagnosis.findings[code][0].step == 0


def test_a_kl_left_out_of_the_reward_is_proven(trainer):
    made = trainer(max_steps=1, beta=5.0, num_iterations=1)
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    result = audit(made)
    made.beta = 1e-9
    made.train()
    assert result.diagnosis.findings["ADV001"][0].claim.verdict is Verdict.PROVEN


@pytest.mark.filterwarnings("ignore:You are importing from .trl.experimental.")
def test_a_subclass_of_trl_with_a_loss_of_its_own_is_refused_in_a_sentence():
    from trl.experimental.gmpo import GMPOTrainer  # a subclass of GRPOTrainer

    with pytest.raises(RecipeError, match=r"cannot be audited\n.*GMPOTrainer\n.*RLOOTrainer, SFT"):
        audit(GMPOTrainer.__new__(GMPOTrainer))


def test_a_subclass_of_a_script_is_audited(trainer, monkeypatch):
    class Mine(trl.RLOOTrainer):
        """Of a script."""

    monkeypatch.setattr(trl, "RLOOTrainer", Mine)
    made = trainer(max_steps=1)
    assert type(made) is Mine
    assert audited(made)[2]["MSK003"] is Verdict.CLEAN
