"""Gates: excluded tokens, skipped steps, and the reasons that they report."""

import dataclasses
import math

import pytest
import torch
from samples import sample, weighted_terms
from test_step import GROUPS, GRPO, learner, on_policy

import truing
from truing.algos import ALGORITHMS, StepConfig
from truing.config import GatesConfig, KlConfig
from truing.errors import GateError
from truing.learner.gates import skip_step_reason
from truing.learner.step import train_step
from truing.models.reference import CopyReference
from truing.record import RunReader
from truing.types.batch import Scores
from truing.types.token import Excluded


@pytest.mark.parametrize("objective", ["dapo", "grpo"])
def test_a_ratio_out_of_bounds_gives_no_gradient_and_is_still_counted(objective):
    """Ratios 3, 1 and 0.2 of one answer: the middle token alone has a gradient, divided by all three."""
    row = sample([1], [5, 6, 7], reward=1.0)
    row = dataclasses.replace(row, advantage=torch.where(row.policy_mask, -1.0, torch.nan))
    new = torch.tensor([[0.0, -1 + math.log(3), -1.0, -1 + math.log(0.2)]], requires_grad=True)
    cfg = GRPO.model_copy(update={"objective": objective})
    setting = StepConfig(cfg, gates=GatesConfig(min_ratio=0.5, max_ratio=2.0))
    weighted_terms(ALGORITHMS["grpo"], setting, [row], Scores(new, new, new))["policy"].backward()
    assert new.grad[0].tolist() == pytest.approx([0, 0, 1 / 3, 0])


@pytest.mark.parametrize(
    ("gates", "why"),
    [
        ({}, ""),
        ({"min_trained_tokens": 11}, ""),
        ({"min_trained_tokens": 12}, "covers 11 tokens, fewer than gates.min_trained_tokens = 12"),
        ({"min_trained_share": 0.91}, ""),  # they are 92 %
        ({"min_trained_share": 0.99}, "11 of 12 sampled and forced tokens"),
    ],
)
def test_a_step_with_too_little_to_learn_from_says_why(gates, why):
    row = GROUPS[0]
    excluded = row.excluded.clone()
    excluded[3] = Excluded.STRUCTURE
    rows = [dataclasses.replace(row, excluded=excluded, policy_mask=excluded == Excluded.NO), *GROUPS[1:]]
    result = skip_step_reason(rows, StepConfig(GRPO, gates=GatesConfig(**gates)))
    assert why in result
    assert bool(result) == bool(why)


def off_reference(model, cfg, kl):
    """A policy that is far from its reference, which is the model before."""
    reference = CopyReference(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return learner(model, cfg, kl=kl, reference=reference), on_policy(model, GROUPS)


@pytest.mark.parametrize(("action", "trained"), [("skip", 0), ("stop_epochs", 1)])
def test_above_the_cap_optimizer_steps_are_skipped(tiny, action, trained):
    cfg = GRPO.model_copy(update={"inner_epochs": 3})
    made, rows = off_reference(tiny.model, cfg, {"cap": 1e-6, "cap_action": action})
    before = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    steps = train_step(made, rows, (0, "test", 0))
    assert [bool(done.skip_reason) for done in steps] == [False] * trained + [True]
    assert "more than kl.cap = 1e-06" in steps[-1].skip_reason
    still = all(torch.equal(p, before[name]) for name, p in tiny.model.named_parameters())
    assert still == (trained == 0)
    assert all(p.grad is None for p in tiny.model.parameters())
    assert steps[-1].grad_norms == []


def test_beyond_the_cap_a_run_may_end(tiny):
    made, rows = off_reference(tiny.model, GRPO, {"cap": 1e-6, "cap_action": "stop"})
    with pytest.raises(GateError, match=r"nats per token from its reference.* at 0/test/0, optimizer step 0"):
        train_step(made, rows, (0, "test", 0))


def test_below_the_cap_no_optimizer_step_is_skipped(tiny):
    made, rows = off_reference(tiny.model, GRPO, {"cap": 1e6, "cap_action": "skip"})
    (done,) = train_step(made, rows, (0, "test", 0))
    assert done.skip_reason == ""
    assert ALGORITHMS["grpo"].needs_reference(made.setting)
    assert [term.name for term in ALGORITHMS["grpo"].terms(StepConfig(GRPO, KlConfig(cap=1.0)))] == ["policy"]


@pytest.mark.integration
def test_a_run_records_what_its_gates_kept_out(mini, tmp_path):
    table = mini(
        stages=["grpo"],
        grpo={"steps": 2, "inner_epochs": 2, "learning_rate": 1e-2},
        entropy={"coef": 0.1},
        gates={"min_ratio": 0.999999, "max_ratio": 1.000001},
    )
    step = RunReader(truing.train(table, out=tmp_path / "a").run).steps()[0]
    assert 0 < step.metrics["gate/ratio_masked_share"] <= 1  # the second epoch, after a large step
    assert "gate/held_back" not in step.metrics

    held = mini(stages=["grpo"], gates={"min_trained_tokens": 10**6})
    reader = RunReader(truing.train(held, out=tmp_path / "b").run)
    for row in reader.steps():
        assert row.loss_label == "held_back"
        assert row.metrics["gate/held_back"] == 1
        assert "grad/norm" not in row.metrics
    texts = [e.payload["text"] for e in reader.events() if e.kind == "incident"]
    assert len(texts) == 3
    assert all("gates.min_trained_tokens = 1000000" in text for text in texts)
    digests = {e.payload["weight_digest"] for e in reader.events() if e.kind == "checkpoint"}
    assert digests == {reader.run_json()["trainable_digest"]}


@pytest.mark.integration
@pytest.mark.parametrize("action", ["skip", "stop"])
def test_demonstrations_alone_have_no_distance_from_the_reference(mini, tmp_path, action):
    """Groups of equal reward are not computed, demonstrations beside them are: they are still trained on."""
    table = mini(stages=["grpo"], kl={"cap": 5.0, "cap_action": action}, bootstrap={"steps": 3})
    run = truing.train(table, rewards=[lambda rollout, task: 0.0], out=tmp_path / "run").run
    for row in RunReader(run).steps():
        assert row.metrics["gate/held_back"] == 0
        assert row.metrics["grad/norm"] > 0
