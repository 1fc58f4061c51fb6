"""Configuration files of other trainers as the settings of their traces."""

import json

import pytest
import yaml
from command import truing

from truing.doctor.traces.configs.config_file import settings_of
from truing.doctor.traces.demo import write_trace
from truing.doctor.traces.setup_words import declared_setup
from truing.errors import RecordError

VERL = """
actor_rollout_ref:
  actor:
    clip_ratio: 0.2
    clip_ratio_low: null
    clip_ratio_high: 0.28
    clip_ratio_c: 3.0
    policy_loss: {loss_mode: vanilla}
    loss_agg_mode: token-mean
    entropy_coeff: 0
    use_kl_loss: true
    kl_loss_coef: 0.02
    kl_loss_type: low_var_kl
    ppo_epochs: 2
    ppo_mini_batch_size: 64
    grad_clip: 1.0
    optim: {lr: 1.0e-6}
  rollout: {n: 8, top_k: -1, top_p: 0.9}
data:
  train_batch_size: 256
  max_response_length: ${oc.select:limits.response,512}
algorithm:
  adv_estimator: grpo
  norm_adv_by_std_in_grpo: true
  use_kl_in_reward: false
  rollout_correction: {rollout_is: null, bypass_mode: false}
trainer:
  v1: {trainer_mode: sync}
"""

NEMO_RL = """
grpo:
  num_prompts_per_step: 32
  num_generations_per_prompt: 16
  normalize_rewards: true
  use_leave_one_out_baseline: true
  overlong_filtering: true
  adv_estimator:
    name: grpo
    normalize_rewards: ${grpo.normalize_rewards}
    use_leave_one_out_baseline: ${grpo.use_leave_one_out_baseline}
  async_grpo: {enabled: false}
loss_fn:
  reference_policy_kl_penalty: 0.01
  reference_policy_kl_type: k3
  use_kl_in_reward: false
  ratio_clip_min: 0.2
  ratio_clip_max: 0.28
  ratio_clip_c: null
  disable_ppo_ratio: false
  sequence_level_importance_ratios: false
  use_importance_sampling_correction: false
  token_level_loss: true
policy:
  train_global_batch_size: 512
  max_grad_norm: 1.0
  optimizer: {kwargs: {lr: 5.0e-6}}
"""

PRIME_RL = """
[orchestrator]
group_size = 16
[orchestrator.algo]
type = "grpo"
[trainer.optim]
lr = 3e-6
"""


def read(tmp_path, text, suffix=".yaml"):
    path = tmp_path / f"config{suffix}"
    path.write_text(text)
    return settings_of(path)


def changed(text, **values):
    """The text with other values at dotted keys, whose dots are two underscores here."""
    config = yaml.safe_load(text)
    for key, value in values.items():
        *path, name = key.split("__")
        part = config
        for each in path:
            part = part[each]
        part[name] = value
    return yaml.safe_dump(config)


def test_the_settings_of_verl(tmp_path):
    assert read(tmp_path, VERL) == {
        "algo": "grpo",
        "advantage": "group",
        "advantage_eps": 1e-6,
        "surrogate": "clip",
        "ratio": "token",
        "aggregation": "token-mean",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": 3.0,
        "plain": True,
        "kl_where": "loss",
        "kl_coef": 0.02,
        "kl_estimator": "k3",
        "kl_weight": "none",
        "correction": "off",
        "mask": "sampled",
        "group_size": 8,
        "inner_steps": 8,
        "on_policy": True,
        "entropy_coef": 0,
        "truncated": "keep",
        "reference_moves": False,
        "max_new_tokens": 512,
        "left_out": ("top_p=0.9",),
        "learning_rate": 1e-6,
        "max_grad_norm": 1.0,
    }


def test_the_settings_of_nemo_rl(tmp_path):
    assert read(tmp_path, NEMO_RL) == {
        "algo": "grpo",
        "advantage": "loo_scaled",
        "advantage_eps": 1e-6,
        "surrogate": "clip",
        "ratio": "token",
        "aggregation": "token_mean",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "plain": True,
        "kl_where": "loss",
        "kl_coef": 0.01,
        "kl_estimator": "k3",
        "kl_weight": "score",
        "correction": "off",
        "mask": "sampled",
        "group_size": 16,
        "inner_steps": 1,
        "on_policy": True,
        "entropy_coef": 0.0,
        "truncated": "mask",
        "reference_moves": False,
        "learning_rate": 5e-6,
        "max_grad_norm": 1.0,
    }


def test_the_settings_of_prime_rl(tmp_path):
    assert read(tmp_path, PRIME_RL, ".toml") == {
        "algo": "grpo",
        "advantage": "none",
        "advantage_eps": 0.0,
        "mask": "sampled",
        "aggregation": "token_mean",
        "surrogate": "other: the default loss",
        "group_size": 16,
        "inner_steps": 1,
        "on_policy": False,
        "learning_rate": 3e-6,
    }


ACTOR, CORRECTION = "actor_rollout_ref__actor", "algorithm__rollout_correction"


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        (VERL, {"algorithm__norm_adv_by_std_in_grpo": False}, {"advantage": "none"}),
        (
            VERL,
            {"algorithm__adv_estimator": "rloo"},
            {"algo": "rloo", "advantage": "loo", "advantage_eps": 0.0},
        ),
        (VERL, {"algorithm__adv_estimator": "opo"}, {"advantage": "other: opo"}),
        (VERL, {"algorithm__adv_estimator": "gae"}, {"algo": "ppo", "advantage": "other: gae, whitened"}),
        (
            VERL,
            {f"{ACTOR}__policy_loss": {"loss_mode": "gspo"}},
            {"ratio": "sequence", "aggregation": "seq-mean-token-mean"},
        ),
        (VERL, {f"{ACTOR}__policy_loss": {"loss_mode": "sapo"}}, {"surrogate": "other: sapo"}),
        (
            VERL,
            {f"{ACTOR}__loss_agg_mode": "seq-mean-token-sum-norm"},
            {"aggregation": "other: seq-mean-token-sum-norm"},
        ),
        (VERL, {f"{ACTOR}__use_kl_loss": False}, {"kl_coef": 0.0}),
        (VERL, {f"{ACTOR}__kl_loss_type": "k1+"}, {"kl_estimator": "other: k1+"}),
        (VERL, {"trainer__v1__trainer_mode": "separate_async"}, {"on_policy": False}),
        (
            VERL,
            {CORRECTION: {"rollout_is": "token", "rollout_is_threshold": 2.0}},
            {"correction": "truncate", "correction_high": 2.0, "on_policy": False},
        ),
        (
            VERL,
            {CORRECTION: {"rollout_is": "sequence", "rollout_is_threshold": "0.5_5.0"}},
            {"correction": "sequence_mask", "correction_low": 0.5, "correction_high": 5.0},
        ),
        (
            VERL,
            {CORRECTION: {"rollout_is": None, "rollout_rs": "token_k1"}},
            {"correction": "other: rollout_rs"},
        ),
        (NEMO_RL, {"grpo__use_leave_one_out_baseline": False}, {"advantage": "group"}),
        (NEMO_RL, {"grpo__normalize_rewards": False}, {"advantage": "loo", "advantage_eps": 0.0}),
        (
            NEMO_RL,
            {"grpo__reward_shaping": {"enabled": True}},
            {"advantage": "other: reward_shaping.enabled"},
        ),
        (
            NEMO_RL,
            {"policy__train_global_batch_size": 256},
            {"inner_steps": 2},
        ),
        (NEMO_RL, {"loss_fn__disable_ppo_ratio": True}, {"surrogate": "other: disable_ppo_ratio"}),
        (
            NEMO_RL,
            {
                "loss_fn__use_importance_sampling_correction": True,
                "loss_fn__truncated_importance_sampling_type": "icepop",
                "loss_fn__truncated_importance_sampling_ratio": 5.0,
                "loss_fn__truncated_importance_sampling_ratio_min": 0.5,
            },
            {"correction": "mask", "correction_low": 0.5, "correction_high": 5.0, "on_policy": False},
        ),
    ],
)
def test_other_values(tmp_path, text, changes, expected):
    before, after = read(tmp_path, text), read(tmp_path, changed(text, **changes))
    assert {name: after.get(name) for name in expected} == expected
    assert {name: before.get(name) for name in expected} != expected
    declared_setup(after, "a trainer", "its file")  # the words are known


def test_a_key_that_a_file_does_not_have_is_not_declared(tmp_path):
    declared = read(tmp_path, "actor_rollout_ref: {}\nalgorithm: {}\ndata: {}\n")
    assert declared == {
        "mask": "sampled",
        "truncated": "keep",
        "reference_moves": False,
        "left_out": (),
    }
    declared = read(tmp_path, "grpo: {}\nloss_fn: {}\npolicy: {}\n")
    assert declared == {"algo": "grpo", "mask": "sampled", "entropy_coef": 0.0, "reference_moves": False}
    older = yaml.safe_load(VERL)
    del older["algorithm"]["rollout_correction"]
    assert "plain" not in read(tmp_path, yaml.safe_dump(older))


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        (".yaml", "a: [", "cannot be read"),
        (".yaml", "- a", "has no keys"),
        (".json", json.dumps({"learning_rate": 1e-6}), "no configuration of a known trainer"),
        (".txt", VERL, "is no configuration file"),
        (".yaml", f"defaults: [base]\n{VERL}", "takes keys from other files"),
        (
            ".yaml",
            changed(VERL, data__train_batch_size="many"),
            "a value is of another type than verl has there",
        ),
        (".yaml", changed(VERL, **{f"{ACTOR}__ppo_mini_batch_size": 0}), "another type than verl"),
    ],
)
def test_other_files_are_refused(tmp_path, suffix, text, said):
    with pytest.raises(RecordError, match=said):
        read(tmp_path, text, suffix)


def test_a_trace_is_judged_by_the_file(tmp_path):
    write_trace(tmp_path / "trace", setup={})
    config = tmp_path / "config.yaml"
    declared = {
        "actor_rollout_ref__rollout__n": 4,
        "data__train_batch_size": 4,
        f"{ACTOR}__ppo_mini_batch_size": 4,
        f"{ACTOR}__clip_ratio_high": 0.2,
        f"{ACTOR}__clip_ratio_c": None,
        f"{ACTOR}__optim": {"lr": 0.1},
    }
    config.write_text(changed(VERL, **declared))
    judged = truing("check", tmp_path / "trace", "--setup", config, "advantage_eps=0.0001")
    assert (judged.code, "0 rules found something" in judged.out) == (0, True), judged.out
    config.write_text(changed(VERL, **declared, **{f"{ACTOR}__loss_agg_mode": "seq-mean-token-mean"}))
    judged = truing("check", tmp_path / "trace", "--setup", config, "--json")
    assert judged.code == 1
    assert "MSK003" in judged.out
    refused = truing("check", "recipes/tiny.toml", "--setup", config)
    assert refused.code == 2
    assert "--setup is of a trace" in refused.err
