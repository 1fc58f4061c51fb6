"""The sampler's weights are the policy's, and every turn says so."""

import pytest
import torch
from recorded import samples_of

import truing
from truing.engines.local.merge_adapter import sampler_copy, sync_weights
from truing.engines.open_engine import open_engine
from truing.envs import env_from_recipe
from truing.models.digest import digest
from truing.models.lora import add_lora
from truing.record import RunReader
from truing.trainer.session import open_session

IDS = torch.arange(40, 60)[None]


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


def adapted(tiny, *, scale):
    """A policy whose adapter is no change where ``scale`` is 0, and a large one elsewhere."""
    policy = add_lora(tiny.model, rank=4, alpha=8, dropout=0.0, targets="all-linear", seed=0)
    move(policy, scale)
    return policy


@torch.no_grad()
def move(policy, scale):
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def test_the_merged_copy_is_the_live_policy_to_rounding(tiny):
    base = logits(tiny.model)
    policy = adapted(tiny, scale=0.3)
    plain = sampler_copy(policy)
    sync_weights(policy, plain)
    assert (logits(policy) - base).abs().max() > 0.1
    torch.testing.assert_close(logits(plain), logits(policy), rtol=0, atol=2e-5)


def test_an_engine_holds_an_adapter_that_the_policy_starts_with(tiny, recipe):
    policy = adapted(tiny, scale=0.3)
    engine = open_engine(recipe(), tiny, policy)  # raises if its log-probabilities are not the policy's
    torch.testing.assert_close(logits(engine.model), logits(policy), rtol=0, atol=2e-5)


def test_the_base_is_untouched_bit_for_bit_by_many_syncs(tiny):
    before = digest(tiny.model.state_dict())
    policy = adapted(tiny, scale=0.0)
    plain = sampler_copy(policy)
    for _ in range(20):
        move(policy, 0.1)
        sync_weights(policy, plain)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
    sync_weights(policy, plain)
    assert digest(plain.state_dict()) == before


def test_the_copy_is_plain_and_frozen_and_shares_only_what_no_adapter_changes(tiny):
    policy = adapted(tiny, scale=0.1)
    plain = sampler_copy(policy)
    assert not [name for name, _ in plain.named_parameters() if "lora" in name]
    assert not any(parameter.requires_grad for parameter in plain.parameters())
    theirs = {parameter.data_ptr() for parameter in policy.parameters()}
    shared = {name for name, parameter in plain.named_parameters() if parameter.data_ptr() in theirs}
    assert shared == {name for name, _ in plain.named_parameters() if "_proj" not in name}
    assert any("embed" in name for name in shared)
    assert any("norm" in name for name in shared)
    plain.bfloat16()
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}


def test_before_a_sync_the_copy_is_stale(tiny):
    policy = adapted(tiny, scale=0.0)
    plain = sampler_copy(policy)
    sync_weights(policy, plain)
    stale = logits(plain)
    move(policy, 0.3)
    assert torch.equal(logits(plain), stale)
    sync_weights(policy, plain)
    assert (logits(plain) - stale).abs().max() > 0.1


def test_without_an_adapter_the_policy_samples_itself(tiny):
    assert sampler_copy(tiny.model) is tiny.model


@pytest.mark.parametrize("lora", [False, {"rank": 2}])
def test_the_digest_changes_exactly_when_a_weight_does(recipe, lora):
    made = recipe(lora=lora)
    session = open_session(made, env_from_recipe(made))
    seen = []
    for change in (False, False, True):
        if change:
            with torch.no_grad():
                flat = list(session.policy.parameters.values())[-1].view(-1)
                flat[0] = torch.nextafter(flat[0], torch.tensor(9.0))
        session.publish(len(seen))
        sampler = session.sampler
        group = sampler.collect_rollouts(sampler.train_tasks[:1], 2, sampler.sampling_params, ("test",))[0]
        (stamp,) = {(r.turns[0].weight_digest, r.turns[0].sampler_version) for r in group.rollouts}
        seen.append(stamp)
    digests, versions = zip(*seen, strict=True)
    assert digests[0] == digests[1] != digests[2]
    assert versions == (0, 1, 2)


@pytest.mark.integration
@pytest.mark.parametrize("moves", [True, False])
def test_turns_of_a_run_are_stamped_with_the_weights_that_drew_them(mini, tmp_path, moves):
    """Equal rewards give no gradient, so the weights stay and so does their digest."""

    def reward(rollout, task):
        return float(rollout.turns[0].token_ids.sum() % 7) if moves else 1.0

    run = truing.train(mini(stages=["grpo"]), rewards=[reward], out=tmp_path / "run").run
    reader = RunReader(run)
    drawn = [
        [turn for row in samples_of(reader.find_table("grpo", i)) for turn in row.turns] for i in range(3)
    ]
    stamps = [{turn.weight_digest for turn in turns} for turns in drawn]
    assert all(len(stamp) == 1 for stamp in stamps)
    assert len(set.union(*stamps)) == (3 if moves else 1)
