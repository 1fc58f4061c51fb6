"""Logs of trainers with names of their own: which of their numbers are ours, and none is unknown."""

import pytest
from foreign import json_lines

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.metric_names import ours_of
from truing.doctor.importers.steps import import_run
from truing.doctor.importers.trainer_names import PRIME_RL, TRL
from truing.doctor.verdict import Verdict

LOGS = {
    "prime-rl": (
        {
            "train/agg/all/agent/reward/mean": 0.5,
            "train/agg/all/agent/reward/p90": 1.0,
            "train/agg/all/agent/num_output_tokens/mean": 90.0,
            "train/agg/all/agent/is_truncated/mean": 0.1,
            "train/agg/all/agent/solved_none": 0.25,
            "train/agg/all/num_turns/mean": 1.0,
            "train/agg/effective/agent/reward/mean": 0.6,
            "entropy/all/mean": 0.4,
            "entropy/math/mean": 0.4,
            "mismatch_kl/all/mean": 0.001,
            "mismatch_kl/all/max": 0.1,
            "is_masked/all/mean": 0.01,
            "loss/mean": 0.02,
            "optim/lr": 1e-6,
            "optim/grad_norm": 0.2,
            "off_policy/mean": 1.0,
            "progress/total_rollouts": 64.0,
            "time/step": 20.0,
            "perf/mfu": 30.0,
        },
        {
            "reward/mean": 0.5,
            "length/mean": 90.0,
            "truncated/share": 0.1,
            "group/all_wrong_share": 0.25,
            "entropy/mean": 0.4,
            "mismatch/k3": 0.001,
            "lr": 1e-6,
            "grad/norm": 0.2,
            "mismatch/steps_behind": 1.0,
            "gate/ratio_masked_share": 0.01,
        },
    ),
    "skyrl": (
        {
            "reward/avg_raw_reward": 0.5,
            "reward/avg_pass_at_4": 0.7,
            "reward/mean_positive_reward": 0.5,
            "generate/avg_num_tokens": 120.0,
            "generate/avg_assistant_tokens": 90.0,
            "generate/std_num_tokens": 10.0,
            "loss/avg_final_rewards": 0.4,
            "loss/avg_raw_advantages": 0.01,
            "loss/avg_raw_advantages_abs": 0.8,
            "loss/avg_kl": 0.1,
            "policy/final_loss": 0.02,
            "policy/policy_loss": 0.02,
            "policy/policy_entropy": 0.4,
            "policy/policy_lr": 1e-6,
            "policy/loss_metrics/clip_ratio": 0.01,
            "policy/rollout_train_logprobs_abs_diff_mean": 0.003,
            "policy/rollout_train_logprobs_abs_diff_max": 0.2,
            "environment/solved": 0.3,
            "async/staleness_mean": 0.5,
            "timing/step": 30.0,
            "trainer/epoch": 0.0,
        },
        {
            "reward/mean": 0.5,
            "advantage/mean": 0.01,
            "advantage/mean_abs": 0.8,
            "entropy/mean": 0.4,
            "lr": 1e-6,
            "mismatch/mean_abs": 0.003,
            "mismatch/max_abs": 0.2,
            "mismatch/steps_behind": 0.5,
        },
    ),
    "tinker": (
        {
            "env/all/reward/total": 0.5,
            "env/all/ac_tokens_per_turn": 90.0,
            "env/all/turns_per_episode": 1.0,
            "env/all/by_group/frac_mixed": 0.5,
            "env/math/reward/total": 0.5,
            "optim/kl_sample_train_v1": 0.001,
            "optim/kl_sample_train_v2": 0.0005,
            "optim/entropy": 0.4,
            "optim/lr": 1e-5,
            "kl_policy_base": 0.1,
            "progress/done_frac": 0.1,
            "time/total": 20.0,
            "test/env/all/reward/total": 0.4,
        },
        {"reward/mean": 0.5, "mismatch/k1": 0.001, "entropy/sampled": 0.4, "lr": 1e-5},
    ),
    "slime": (
        {
            "rollout/raw_reward": 0.5,
            "rollout/rewards": 0.0,
            "rollout/advantages": 0.0,
            "rollout/response_len/mean": 90.0,
            "rollout/response_len/max": 400.0,
            "rollout/response_len/min": 9.0,
            "rollout/truncated_ratio": 0.1,
            "rollout/zero_std/count_0": 2.0,
            "rollout/repetition_frac": 0.0,
            "train/loss": 0.02,
            "train/pg_clipfrac": 0.01,
            "train/ppo_kl": 0.0,
            "train/entropy_loss": 0.4,
            "train/train_rollout_logprob_abs_diff": 0.01,
            "train/grad_norm": 0.2,
            "train/lr-pg_0": 1e-6,
            "train/lr-pg_1": 1e-6,
            "perf/step_time": 20.0,
        },
        {
            "reward/mean": 0.5,
            "length/mean": 90.0,
            "length/max": 400.0,
            "truncated/share": 0.1,
            "grad/norm": 0.2,
            "lr": 1e-6,
        },
    ),
    "nemo-rl": (
        {
            "train/reward": 0.5,
            "train/loss": 0.02,
            "train/grad_norm": 0.2,
            "train/lr": 1e-6,
            "train/wd": 0.01,
            "train/mean_gen_tokens_per_sample": 90.0,
            "train/max_gen_tokens_per_sample": 400.0,
            "train/mean_total_tokens_per_sample": 150.0,
            "train/truncation_rate": 0.1,
            "train/natural_termination_rate": 0.8,
            "train/max_turns_reached_rate": 0.1,
            "train/total_turns": 64.0,
            "train/gen_kl_error": 0.001,
            "train/policy_kl_error": 0.001,
            "train/js_divergence_error": 0.0002,
            "train/token_mult_prob_error": 1.01,
            "train/probs_ratio": 1.0,
            "train/probs_ratio_min": 0.7,
            "train/probs_ratio_max": 1.4,
            "train/probs_ratio_clamped": 1.0,
            "train/probs_ratio_clamped_max": 1.2,
            "train/approx_entropy": 0.4,
            "train/advantages/mean": 0.0,
            "train/advantages/max": 1.5,
            "train/advantages/min": -1.7,
            "train/kl_penalty": 0.01,
            "train/global_valid_toks": 9000.0,
            "timing/train/total_step_time": 20.0,
            "performance/tokens_per_sec_per_gpu": 900.0,
            "validation/accuracy": 0.5,
        },
        {
            "reward/mean": 0.5,
            "loss/total": 0.02,
            "grad/norm": 0.2,
            "lr": 1e-6,
            "length/mean": 90.0,
            "length/max": 400.0,
            "truncated/share": 0.1,
            "ended/turns": 0.1,
            "mismatch/k3": 0.001,
            "ratio/mean": 1.0,
            "ratio/min": 0.7,
            "ratio/max": 1.4,
            "advantage/mean": 0.0,
            "advantage/max_abs": 1.7,
        },
    ),
}
"""By trainer: a line of its log, and what is read from it."""


def log_of(path, trainer, **series):
    """A log of 24 steps, in which some numbers differ by step."""
    line, _ = LOGS[trainer]
    at = [{name: values[i] for name, values in series.items()} for i in range(24)]
    return json_lines(path / "log.jsonl", [{**line, **at[i], "step": i + 1} for i in range(24)])


@pytest.mark.parametrize("trainer", LOGS)
def test_numbers_have_our_names_and_none_is_unknown(tmp_path, trainer):
    run = import_run(read_log(log_of(tmp_path, trainer)))
    assert run.trainer == trainer
    assert run.unknown == []
    expected = LOGS[trainer][1]
    assert {name: run.steps[3].metrics.get(name) for name in expected} == expected
    read_or_known = {*run.matched, *run.unused}
    assert {name.removeprefix("train/") for name in LOGS[trainer][0]} <= read_or_known


@pytest.mark.parametrize(
    ("trainer", "reward"),
    [
        ("prime-rl", "train/agg/all/agent/reward/mean"),
        ("skyrl", "reward/avg_raw_reward"),
        ("tinker", "env/all/reward/total"),
        ("slime", "rollout/raw_reward"),
        ("nemo-rl", "train/reward"),
    ],
)
def test_a_reward_that_fell_is_found_and_one_that_did_not_is_not(tmp_path, trainer, reward):
    def found(values):
        log = log_of(tmp_path, trainer, **{reward: values})
        strong = (Verdict.PROVEN, Verdict.EVIDENCE, Verdict.SUSPECT)
        results = diagnose_log(log).diagnosis.results()
        return {each.code for each in results for found in each.findings if found.claim.verdict in strong}

    assert "RWD010" in found([(0.9 if i < 12 else 0.05) + 0.01 * (i % 3) for i in range(24)])
    assert "RWD010" not in found([0.5 + 0.02 * (i % 5) for i in range(24)])


SCORES = {
    "prime-rl": ("eval/aime/avg@16", "eval/aime/num_output_tokens/mean"),
    "skyrl": ("eval/all/avg_score", "eval/all/avg_num_tokens"),
    "tinker": ("test/env/all/reward/total", "test/env/all/turns_per_episode"),
    "nemo-rl": ("validation/accuracy", "validation/avg_length"),
}
"""By trainer: a score of its evaluations, and a number beside it."""


@pytest.mark.parametrize("trainer", SCORES)
def test_scores_of_evaluations_are_beside_the_steps(tmp_path, trainer):
    score, other = SCORES[trainer]
    log = log_of(tmp_path, trainer, **{score: [0.01 * i for i in range(24)], other: [90.0] * 24})
    run = import_run(read_log(log))
    assert [*run.evaluations] == [score]
    assert run.evaluations[score][24] == 0.23
    assert score not in run.steps[3].metrics


def test_passes_over_the_prompts_are_the_most_of_a_log(tmp_path):
    log = log_of(tmp_path, "prime-rl", **{"progress/epoch": [float(i // 4) for i in range(24)]})
    assert import_run(read_log(log)).epochs == {"progress/epoch": 5.0}


def test_what_the_star_of_a_name_stands_for_is_in_ours():
    assert ours_of(TRL, "rewards/accuracy_reward/mean") == "reward_part/accuracy_reward"
    assert ours_of(TRL, "rewards/accuracy_reward/std") == "part_std/accuracy_reward"
    assert ours_of(PRIME_RL, "agg/all/math/reward/mean") == "reward/mean"
