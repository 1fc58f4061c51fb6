"""A hundred steps of a real model: the policy changes, its reference does not change by a single bit."""

import pytest
import torch

import truing
import truing.learner.learner
from truing.models.digest import digest
from truing.models.forward.collate import collate
from truing.models.load import load
from truing.record import RunReader


@pytest.mark.slow
@pytest.mark.parametrize("lora", [{"rank": 8}, False], ids=["lora", "full"])
def test_after_a_hundred_steps_the_reference_is_what_the_stage_began_with(tmp_path, monkeypatch, lora):
    kept = []
    freeze = truing.learner.learner.make_reference

    def remember(*given, **options):
        reference = freeze(*given, **options)
        kept.append((reference, digest(reference.weights())))
        return reference

    monkeypatch.setattr(truing.learner.learner, "make_reference", remember)
    recipe = {
        "name": "still",
        "stages": ["grpo"],
        "model": {"name": "smollm2-135m", "device": "cpu", "threads": 2},
        "env": {"name": "arithmetic", "kinds": ["sort-3"]},
        "lora": lora,
        "sampling": {"max_new_tokens": 4},
        "grpo": {
            "steps": 100,
            "learning_rate": 1e-4 if lora else 1e-6,
            "prompts_per_step": 1,
            "group_size": 2,
            "objective": "dapo",
        },
        "kl": {"coef": 0.05},
        "entropy": {"coef": 0.01},  # which moves the policy, whatever it earns
        "checkpoint_every": 25,
        "eval": {"tasks": 2, "base": False},
    }
    run = truing.train(recipe, out=tmp_path / "run").run
    ((reference, before),) = kept
    assert digest(reference.weights()) == before
    reader = RunReader(run)
    steps = reader.steps()
    assert len(steps) == 100
    assert steps[0].metrics["kl_all/k3"] == pytest.approx(0.0, abs=1e-6)
    assert steps[-1].metrics["kl_all/k3"] > 1e-6
    table = reader.find_table("grpo", 99)
    batch = collate([table.sample(index) for index in range(len(table.samples))])
    fresh = load("smollm2-135m", device="cpu").model
    with torch.no_grad():
        now = reference.score(batch, batch.kl_mask).logprob
        began = truing.learner.learner.make_reference(fresh).score(batch, batch.kl_mask).logprob
    assert torch.equal(now, began)
