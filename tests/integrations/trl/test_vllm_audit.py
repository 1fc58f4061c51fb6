"""Audits of a ``GRPOTrainer`` beside an engine: silent if both are right; planted faults are found."""

import datasets
import peft
import pytest
import torch
import trl
from fake_vllm import FakeVllm
from pick import first
from trl_options import random_reward

from dev.measure.trl_vllm import NotSynced, OtherCap, OtherWindow, Twice, WithoutTemperature
from truing.doctor.postmortem import diagnose_run
from truing.doctor.report.text import report_facts
from truing.doctor.verdict import FINDING_VERDICTS, STRONG_VERDICTS, Verdict
from truing.integrations.trl import audit

FINE, COARSE = torch.float32, torch.bfloat16


@pytest.fixture
def trainer(wide_folder, config, monkeypatch):
    def made(dtype=COARSE, kind=trl.GRPOTrainer, engine=FakeVllm, peft_config=None, **changes):
        chosen = type("Chosen", (engine,), {"dtype": dtype})
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", chosen)
        own = {
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 12,
            "beta": 0.0,
            "use_vllm": True,
        }
        asked = [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(16)]
        return kind(
            model=str(wide_folder),
            args=trl.GRPOConfig(**config | own | changes),
            reward_funcs=[random_reward],
            train_dataset=datasets.Dataset.from_list(asked),
            peft_config=peft_config,
        )

    return made


def audited(trl_trainer):
    result = audit(trl_trainer)
    trl_trainer.train()
    return result


def fired(result, verdicts=FINDING_VERDICTS):
    return [code for code, found in result.diagnosis.findings.items() if found[0].claim.verdict in verdicts]


def clean(result):
    return {each.code for each in result.diagnosis.results() if each.verdict is Verdict.CLEAN}


def corrected(mode, low=0.97, high=1.03):
    return {
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_min": low,
        "vllm_importance_sampling_clip_max": high,
    }


HEALTHY = {
    "default": {},
    "in float32": {"dtype": FINE},
    "tokens truncated": corrected("token_truncate") | {"num_iterations": 2, "beta": 0.1},
    "part of a generation": {"steps_per_generation": 4, "gradient_accumulation_steps": 2},
    "a server": {"vllm_mode": "server"},
    "an adapter": {
        "peft_config": peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
        "learning_rate": 1e-2,
    },
    "tokens masked": corrected("token_mask", None),
    "rows truncated": corrected("sequence_truncate", 0.9, 1.1),
    "rows masked": corrected("sequence_mask", 0.9, 1.1) | {"loss_type": "dr_grpo"},
    "no correction": {"vllm_importance_sampling_correction": False},
    "cispo in parts": {
        "loss_type": "cispo",
        "epsilon_high": 5.0,
        "steps_per_generation": 3,
        "gradient_accumulation_steps": 2,
        "max_steps": 4,
    },
    "two generations a step": {"steps_per_generation": 1, "gradient_accumulation_steps": 2},
    "two-sided clip": {"delta": 1.3, "num_iterations": 3, "learning_rate": 1e-2, "max_steps": 3},
    "off-policy rows": {
        "off_policy_mask_threshold": 0.005,
        "num_iterations": 3,
        "learning_rate": 1e-2,
        "max_steps": 3,
    },
    "quarter of the tokens": {
        "top_entropy_quantile": 0.25,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
    },
    "micro-batch means": {
        "loss_type": "bnpo",
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
    },
    "temperature": {"temperature": 0.7},
}


@pytest.mark.parametrize("name", first(6, HEALTHY))
def test_a_healthy_trainer_beside_an_engine_is_left_alone_and_its_loss_is_checked(trainer, name):
    result = audited(trainer(**HEALTHY[name]))
    assert fired(result) == []
    assert {"MSK003", "OPT009", "RAT002", "RAT007", "SMP001", "SMP002", "SMP004"} <= clean(result)


@pytest.mark.integration
@pytest.mark.parametrize("name", first(1, ["tokens truncated", "rows masked", "quarter of the tokens"]))
def test_a_healthy_trainer_in_another_precision_is_left_alone_beside_an_engine(trainer, coarse, name):
    result = audited(trainer(**HEALTHY[name] | coarse))
    assert fired(result) == []
    assert {"MSK003", "OPT009", "RAT002", "RAT007", "SMP002", "SMP004"} <= clean(result)


class Deaf(FakeVllm):
    """Answers that it has loaded the weights, and has not."""

    def sync_weights(self):
        pass


FAULTS = {
    "corrected twice": ({"kind": Twice} | corrected("token_truncate", None, 3.0), "MSK003"),
    "another cap": ({"kind": OtherCap} | corrected("token_truncate", None, 1.02), "MSK003"),
    "another window": (
        {"kind": OtherWindow, "steps_per_generation": 4, "gradient_accumulation_steps": 2},
        "MSK003",
    ),
    "not synced": ({"kind": NotSynced, "max_steps": 3}, "SMP002"),
    "a deaf engine": ({"engine": Deaf, "dtype": FINE, "max_steps": 3, "learning_rate": 1e-2}, "SMP004"),
    "no temperature": ({"kind": WithoutTemperature, "temperature": 0.7}, "SMP005"),
}


@pytest.mark.parametrize("name", first(6, FAULTS))
def test_what_is_planted_beside_an_engine_is_proven(trainer, name):
    options, code = FAULTS[name]
    assert code in fired(audited(trainer(**options)), STRONG_VERDICTS)


def test_what_was_kept_beside_an_engine_is_judged_again_as_it_was(trainer, tmp_path):
    trl_trainer = trainer(**HEALTHY["part of a generation"])
    result = audit(trl_trainer, out=tmp_path / "kept")
    trl_trainer.train()
    again = diagnose_run(tmp_path / "kept")
    assert report_facts(again) == report_facts(result.diagnosis)


def with_tool_tokens(fill):
    """The third and fourth token of each answer are a tool's; ``fill`` stands for their log-probability."""

    class WithTools(trl.GRPOTrainer):
        def _generate(self, prompts):
            out = list(super()._generate(prompts))
            out[2] = [[int(i not in (2, 3)) for i in range(len(ids))] for ids in out[1]]
            out[4] = [[fill if i in (2, 3) else x for i, x in enumerate(row)] for row in out[4]]
            return tuple(out)

    return WithTools


@pytest.mark.parametrize(("fill", "codes"), [(0.0, []), (-1.0, ["SMP001"])])
def test_numbers_that_fill_the_tokens_of_tools_are_not_suspected(trainer, fill, codes):
    result = audited(trainer(kind=with_tool_tokens(fill)))
    assert fired(result) == codes
    assert ("SMP001" in clean(result)) == (not codes)


class Bypassing(trl.GRPOTrainer):
    """Computes the loss in ``compute_loss`` itself."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return trl.GRPOTrainer._compute_loss(self, model, inputs)


def test_a_loss_that_passes_by_the_audit_is_told_and_never_clean(trainer, capsys):
    result = audited(trainer(kind=Bypassing))
    said = "NOT CHECKED: 1 of 1 optimizer step. The audit did not see their loss: the trainer does not call"
    assert f"{said} _compute_loss" in capsys.readouterr().err
    assert "NOT CHECKED: 2 of 2 optimizer steps" in str(result)
    assert "clean" not in str(result)
