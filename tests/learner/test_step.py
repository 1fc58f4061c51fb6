"""One step: its gradient against closed forms, and what it does not depend on."""

import dataclasses

import pytest
import torch
from samples import demo, sample

from truing.algos import ALGORITHMS, StepConfig
from truing.config import CorrectionConfig, GrpoConfig, KlConfig, OptimizerConfig, ReferenceConfig, SftConfig
from truing.errors import NonFiniteError
from truing.learner.learner import Learner
from truing.learner.memory_budget import MemoryBudget, MemoryNeed
from truing.learner.optimizer import make_optimizer
from truing.learner.step import train_step
from truing.models.critic import Critic
from truing.models.lora import add_lora, trainable_parameters
from truing.models.reference import AdapterReference, CopyReference

GRPO = GrpoConfig(steps=1, learning_rate=1e-3)
GROUPS = [
    sample([5, 6, 7], [8, 9, 10], name="a", group="x", reward=1.0),
    sample([5, 6, 7], [11], name="b", group="x", reward=0.0),
    sample([5, 6, 7], [12, 13], name="c", group="x", reward=0.5),
    sample([20, 21], [8, 9], name="d", group="y", reward=0.0),
    sample([20, 21], [10, 11, 12, 13], name="e", group="y", reward=1.0),
]


def learner(
    model,
    cfg,
    *,
    kl=None,
    correction=None,
    algorithm="grpo",
    tokens=4096,
    fits=10**6,
    fits_recomputed=0,
    reference=None,
):
    optimizer_cfg = OptimizerConfig(micro_batch_tokens=tokens, max_grad_norm=1e9)
    chosen, parameters = ALGORITHMS[algorithm], trainable_parameters(model)
    kind = chosen.critic(cfg)
    critic = Critic(model, separate=kind == "separate") if kind else None
    groups = [parameters, *([critic.trainable()] if critic else [])]
    stage_learner = Learner(
        model=model,
        parameters=parameters,
        computed_groups=groups,
        optimizer=make_optimizer(optimizer_cfg, *groups),
        reference=reference,
        critic=critic,
        algorithm=chosen,
        setting=StepConfig(cfg, KlConfig(**kl or {}), correction=correction or CorrectionConfig()),
        optimizer_cfg=optimizer_cfg,
        reference_cfg=ReferenceConfig(),
        memory_budget=MemoryBudget(MemoryNeed(0, 1), tokens, fits, fits_recomputed),
    )
    stage_learner.set_learning_rates(0)
    return stage_learner


def gradient_of(model, cfg, samples, **options):
    """The gradient that a step applies: read off before the optimiser clears it."""
    stage_learner = learner(model, cfg, **options)
    kept = {}

    def keep(*_):
        kept.update(
            {name: p.grad.clone() for name, p in stage_learner.parameters.items() if p.grad is not None}
        )

    stage_learner.optimizer.register_step_pre_hook(keep)
    train_step(stage_learner, samples, (0, "test", 0))
    return kept


def on_policy(model, samples):
    """The same samples with the log-probabilities that the model gives them."""
    made = []
    for row in samples:
        with torch.no_grad():
            logits = model(row.token_ids[None]).logits[0, :-1]
        logprob = torch.cat([torch.zeros(1), logits.log_softmax(-1).gather(1, row.token_ids[1:, None])[:, 0]])
        logprob = torch.where(row.policy_mask, logprob, torch.nan)
        made.append(dataclasses.replace(row, sampler_logprob=logprob, old_logprob=logprob))
    return made


@pytest.mark.parametrize("objective", ["grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_micro_batches_give_the_gradient_of_one(tiny, objective):
    cfg = GRPO.model_copy(update={"objective": objective})
    samples = on_policy(tiny.model, GROUPS)
    start = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    gradients = []
    for tokens in (4096, 12, 1):  # one micro-batch, a few, one per sample
        tiny.model.load_state_dict(start, strict=False)
        gradients.append(gradient_of(tiny.model, cfg, samples, tokens=tokens))
    for other in gradients[1:]:
        for name, value in gradients[0].items():
            assert torch.allclose(value, other[name], rtol=1e-4, atol=1e-6), name
    assert any(value.abs().max() > 1e-4 for value in gradients[0].values())


def test_the_grpo_gradient_on_policy_is_reinforce_by_hand(tiny):
    """At ratio 1: −1/B Σ_i A_i/|o_i| Σ_t ∇ log π, computed by the plain forward."""
    samples = on_policy(tiny.model, GROUPS)
    # group x: rewards 1, 0, 0.5, mean 0.5, std 0.5; group y: 0, 1, mean 0.5, std √0.5
    advantages = [0.5 / 0.5001, -0.5 / 0.5001, 0.0, -0.5 / (0.5**0.5 + 1e-4), 0.5 / (0.5**0.5 + 1e-4)]
    loss = 0
    for row, advantage in zip(samples, advantages, strict=True):
        logits = tiny.model(row.token_ids[None]).logits[0, :-1]
        logprob = logits.log_softmax(-1).gather(1, row.token_ids[1:, None])[:, 0][row.prompt_length - 1 :]
        loss = loss - advantage * logprob.mean() / len(samples)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in tiny.model.named_parameters()}
    tiny.model.zero_grad()
    for name, value in gradient_of(tiny.model, GRPO, samples).items():
        assert torch.allclose(value, expected[name], rtol=1e-3, atol=1e-6), name


def test_equal_rewards_leave_the_weights_bitwise_alone(tiny):
    """Nothing is computed, and not even the momentum of earlier steps moves on."""
    stage_learner = learner(tiny.model, GRPO)
    train_step(stage_learner, on_policy(tiny.model, GROUPS), (0, "test", 0))
    before = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    samples = on_policy(tiny.model, [dataclasses.replace(row, reward=0.1) for row in GROUPS])
    (done,) = train_step(stage_learner, samples, (0, "test", 1))
    assert done.grad_norms == [0]
    assert done.loss == done.streams == {}
    for name, parameter in tiny.model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_kl_term_asks_for_samples_without_an_advantage(tiny):
    samples = on_policy(tiny.model, GROUPS)
    stage_learner = learner(tiny.model, GRPO, kl={"coef": 0.1}, reference=CopyReference(tiny.model))
    (done,) = train_step(stage_learner, samples, (0, "test", 0))
    assert [row.sample_id for row in done.computed] == list("abcde")


def test_ratios_are_one_at_the_first_optimizer_step_and_move_at_the_second(tiny):
    cfg = GRPO.model_copy(update={"inner_epochs": 2})
    samples = on_policy(tiny.model, GROUPS)
    first, second = train_step(learner(tiny.model, cfg), samples, (0, "test", 0))
    pulling = [row for row in samples if row.sample_id != "c"]  # its advantage is 0
    assert [row.sample_id for row in first.computed] == [row.sample_id for row in second.computed]
    assert {row.sample_id for row in first.computed} == {row.sample_id for row in pulling}
    for row in pulling:
        drift = [
            (each.stream("new_logprob", row) - row.old_logprob)[row.policy_mask].abs().max()
            for each in (first, second)
        ]
        assert drift[0] < 1e-5
        assert drift[1] > 1e-4


def test_minibatches_split_every_epoch(tiny):
    cfg = GRPO.model_copy(update={"inner_epochs": 2, "minibatches": 2})
    steps = train_step(learner(tiny.model, cfg), on_policy(tiny.model, GROUPS), (0, "test", 0))
    names = [sorted(row.sample_id for row in each.samples) for each in steps]
    assert sorted(names[0] + names[1]) == sorted(names[2] + names[3]) == list("abcde")


def test_a_good_answer_gains_and_a_bad_one_loses(tiny):
    stage_learner = learner(tiny.model, GRPO)
    samples = on_policy(tiny.model, GROUPS)
    train_step(stage_learner, samples, (0, "test", 0))
    after = {row.sample_id: row.old_logprob[row.policy_mask].sum() for row in on_policy(tiny.model, GROUPS)}
    before = {row.sample_id: row.old_logprob[row.policy_mask].sum() for row in samples}
    assert after["a"] > before["a"]
    assert after["e"] > before["e"]
    assert after["b"] < before["b"]
    assert after["d"] < before["d"]


@pytest.mark.parametrize("lora", [True, False])
def test_the_reference_stays_while_the_policy_moves(tiny, lora):
    model = tiny.model
    if lora:
        model = add_lora(tiny.model, rank=4, alpha=8, dropout=0.0, targets="all-linear", seed=0)
    cfg = GRPO.model_copy(update={"inner_epochs": 2, "learning_rate": 1e-2})
    reference = AdapterReference(model) if lora else CopyReference(model)
    stage_learner = learner(model, cfg, kl={"coef": 0.1}, reference=reference)
    samples = on_policy(model, GROUPS)
    first = train_step(stage_learner, samples, (0, "test", 0))
    again = train_step(stage_learner, samples, (0, "test", 1))
    for row, later in zip(first[0].samples, again[0].samples, strict=True):
        assert torch.allclose(row.ref_logprob[row.kl_mask], row.old_logprob[row.kl_mask], atol=1e-5)
        assert torch.equal(row.ref_logprob[row.kl_mask], later.ref_logprob[row.kl_mask])
    assert abs(first[0].loss["kl"]) < 1e-6  # the policy still is its reference
    assert first[1].loss["kl"] > 1e-6


def test_supervised_tokens_alone_are_trained_and_the_mean_is_over_tokens(tiny):
    cfg = SftConfig(steps=1, learning_rate=1e-3)
    rows = [demo([5, 6], [7, 8, 9], "a"), demo([10], [11], "b")]
    (done,) = train_step(learner(tiny.model, cfg, algorithm="sft"), rows, (0, "sft", 0))
    logprob = torch.cat([done.stream("new_logprob", row)[row.supervised_mask] for row in rows])
    assert done.loss["supervised"] == pytest.approx(-float(logprob.mean()), rel=1e-5)
    assert done.stream("new_logprob", rows[0])[:2].isnan().all()


def test_a_non_finite_loss_stops_before_the_weights_change(tiny):
    bad = dataclasses.replace(GROUPS[1], old_logprob=torch.full((4,), -torch.inf))
    before = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    with pytest.raises(
        NonFiniteError, match=r"policy term of the loss is .* 0/test/0, optimizer step 0"
    ) as error:
        train_step(learner(tiny.model, GRPO), [GROUPS[0], bad, *GROUPS[2:]], (0, "test", 0))
    tokens, first = int(bad.policy_mask.sum()), int(bad.policy_mask.nonzero()[0])
    where = f"the first is token {first} of {bad.sample_id}"
    assert error.value.got.startswith(f"old_logprob is -inf at {tokens} of ")
    assert error.value.got.endswith(where)
    assert all(torch.equal(p, before[name]) for name, p in tiny.model.named_parameters())


def test_a_non_finite_gradient_names_its_parameter(tiny):
    def poison(grad):
        return torch.full_like(grad, torch.nan)

    tiny.model.model.norm.weight.register_hook(poison)
    with pytest.raises(NonFiniteError, match=r"gradient of model.norm.weight is not finite"):
        train_step(learner(tiny.model, GRPO), on_policy(tiny.model, GROUPS), (0, "test", 0))
