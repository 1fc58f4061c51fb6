"""The cross-check of a step: the sampler's merged layer against base + scale · B A."""

import pytest
import torch
from architectures import tiny_config, tiny_model

import truing
from truing.doctor.report.recorded_findings import current_findings
from truing.doctor.rules.opt006 import MEASURED
from truing.engines.local.merge_adapter import sampler_copy, sync_weights
from truing.measurements.sampler_layer import sync_fact
from truing.models.lora import add_lora, trainable_parameters
from truing.record import RunReader
from truing.trainer import stage_trainer


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])  # GPT-2 holds weights [in, out]
def test_the_sampler_holds_each_layer_with_its_adapter(model_type, recipe):
    declared = recipe(lora={"rank": 4, "alpha": 8.0})
    policy = add_lora(
        tiny_model(tiny_config(model_type)), rank=4, alpha=8.0, dropout=0.0, targets="all-linear", seed=0
    )
    with torch.no_grad():
        for weight in trainable_parameters(policy).values():
            weight.normal_()
    sampler = sampler_copy(policy)
    sync_weights(policy, sampler)
    for step in range(4):
        facts = sync_fact(policy, sampler, declared, step)
        assert facts["largest"] < 1e-5
        facts = sync_fact(policy, sampler, recipe(lora={"rank": 4, "alpha": 12.0}), step)
        assert facts["largest"] > 0.1


def test_good_answers_have_weight_one_whatever_the_bootstrap_declares(trained_run):
    """Its weight falls from step to step, and belongs to the demonstrations beside a policy loss."""
    rft = {"steps": 3, "learning_rate": 1e-3, "prompts_per_step": 2, "group_size": 2, "min_reward": -1.0}
    bootstrap = {"steps": 3, "batch_size": 2}
    run = trained_run("run", stages=["rft"], rft=rft, bootstrap=bootstrap, doctor={"budget": 1.0}).run
    gradients = [row.facts["gradient"] for row in RunReader(run).steps()]
    assert len(gradients) == 3
    for gradient in gradients:
        assert gradient["trainer"] == pytest.approx(gradient["norm"], rel=1e-4)


def test_large_attention_scores_explain_other_gradients(mini, tmp_path, monkeypatch):
    """As in a run that diverges: the last digit of a score is a share of the softmax. Nothing is wrong."""
    opened = stage_trainer.open_learner

    def with_large_scores(*args, **options):
        learner = opened(*args, **options)
        with torch.no_grad():
            for name, weight in learner.parameters.items():
                weight.mul_(3000.0 if "q_proj" in name or "k_proj" in name else 1.0)
        return learner

    monkeypatch.setattr(stage_trainer, "open_learner", with_large_scores)
    doctor = {"budget": 1.0, "suppress": {"OPT018": "the weights are meant to be large"}}
    table = mini(stages=["sft"], sft={"steps": 1, "batch_size": 4}, doctor=doctor)
    run = truing.train(table, out=tmp_path / "run", on_event=lambda *_: None).run
    (facts,) = (row.facts for row in RunReader(run).steps())
    for fact in (facts["gradient"], facts["row_gradients"]):
        assert fact["difference"] > MEASURED * fact["norm"]
    assert not current_findings(RunReader(run).events())
