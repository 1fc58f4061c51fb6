"""verl: its file of metrics and its dumps, alone and together."""

import math

import pytest
from foreign import STEPS, critic, json_lines, rollouts

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.setup import changed_meanings, config_names, setup_of
from truing.doctor.importers.steps import import_run
from truing.doctor.importers.trainer_names import VERL
from truing.doctor.rules import adv004
from truing.doctor.verdict import Verdict
from truing.errors import RecordError

TOKEN_MEAN = {"actor_rollout_ref": {"actor": {"loss_agg_mode": "token-mean", "kl_loss_type": "low_var_kl"}}}


def folder(path, scores_by_step):
    for step, scores in scores_by_step.items():
        json_lines(path / f"{step}.jsonl", rollouts(step, scores))
    return path


def test_metrics_have_our_names_and_what_is_another_quantity_has_none(tmp_path):
    run = import_run(read_log(json_lines(tmp_path / "log.jsonl", critic(0, lambda t, r: 0.5))))
    assert (run.trainer, len(run.steps)) == ("verl", STEPS)
    step = run.steps[0]
    assert step.step == 0  # its step 1 is our first step
    assert step.setup.algo == "ppo"
    assert step.metrics["value/centred_explained_variance"] == 0.5
    assert step.metrics["advantage/max_abs"] == 3.5
    assert "value/explained_variance" not in step.metrics
    assert run.unused == {"timing_s/step": "seconds and speed"}
    assert run.unknown == []


def test_numbers_of_a_dump_follow_from_its_rewards_and_groups(tmp_path):
    run = import_run(
        read_log(folder(tmp_path, {7: (1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)}))
    )
    (step,) = run.steps
    assert step.step == 6
    assert step.metrics == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/std": math.sqrt(12 * 0.25 / 11),
            "group/zero_variance_share": 2 / 3,
            "group/all_right_share": 1 / 3,
            "group/all_wrong_share": 1 / 3,
        }
    )
    assert step.samples[0].text == "it is 1.0"
    assert run.has_answers


def test_a_prompt_that_recurs_more_often_than_most_makes_no_group(tmp_path):
    prompts = ["a"] * 4 + ["b"] * 4 + ["twice"] * 8
    json_lines(tmp_path / "1.jsonl", rollouts(1, [0.0] * 4 + [1.0] * 4 + [0.0] * 8, prompts))
    (step,) = import_run(read_log(tmp_path)).steps
    assert [row.group_id for row in step.samples] == ["g0"] * 4 + ["g1"] * 4 + [""] * 8
    assert step.metrics["group/zero_variance_share"] == 1.0
    assert step.metrics["group/all_wrong_share"] == 0.5  # of the two groups that are known


def test_of_two_sizes_that_are_as_common_the_smaller_is_a_group(tmp_path):
    json_lines(tmp_path / "1.jsonl", rollouts(1, [0.0] * 12, ["a"] * 4 + ["b"] * 8))
    (step,) = import_run(read_log(tmp_path)).steps
    assert {row.group_id for row in step.samples[:4]} == {"g0"}
    assert {row.group_id for row in step.samples[4:]} == {""}


def test_rollouts_of_no_group_are_not_compared(tmp_path):
    prompts = ["a"] * 4 + ["b"] * 4 + ["twice"] * 8
    json_lines(tmp_path / "1.jsonl", rollouts(1, [0.0] * 8 + [0.0, 1.0] * 4, prompts))
    (step,) = import_run(read_log(tmp_path)).steps
    assert adv004.measure(step).equal == 1.0  # both groups that are known


def test_one_rollout_at_each_prompt_is_no_group(tmp_path):
    json_lines(tmp_path / "1.jsonl", rollouts(1, [0.0, 1.0], ["a", "b"]))
    (step,) = import_run(read_log(tmp_path)).steps
    assert step.metrics == pytest.approx({"reward/mean": 0.5, "reward/std": 0.5**0.5})


def test_metrics_and_dumps_are_joined_by_step_and_the_trainers_own_numbers_stay(tmp_path):
    folder(tmp_path, dict.fromkeys((2, 3), (1.0, 0.0, 1.0, 0.0)))
    json_lines(tmp_path / "log.jsonl", critic(0, lambda t, r: 0.5)[:3])
    run = import_run(read_log(tmp_path))
    assert [(step.step, len(step.samples)) for step in run.steps] == [(0, 0), (1, 4), (2, 4)]
    assert run.steps[1].metrics["reward/mean"] != 0.5
    assert run.steps[1].metrics["group/zero_variance_share"] == 0.0
    assert run.format == "verl's metrics and rollout dumps"


def test_rewards_that_never_differ_cannot_be_determined_and_groups_are_suspect(tmp_path):
    judged = diagnose_log(folder(tmp_path, dict.fromkeys(range(1, 7), (0.0,) * 8)))
    results = {each.code: each for each in judged.diagnosis.results()}
    assert results["RWD006"].verdict is Verdict.CANNOT_TELL
    assert results["ADV004"].verdict is Verdict.SUSPECT
    for code in ("ADV008", "RWD001", "RWD003", "RWD004", "TOK001"):  # what a dump says nothing of
        assert results[code].verdict is Verdict.NOT_CHECKED


def test_a_kl_is_ours_where_its_estimator_and_its_mean_are_declared():
    actor = TOKEN_MEAN["actor_rollout_ref"]["actor"]
    assert config_names(VERL, TOKEN_MEAN) == {"actor/kl_loss": "kl_trained/k3"}
    assert config_names(VERL, {"actor_rollout_ref": {"actor": actor | {"kl_loss_type": "kl"}}}) == {
        "actor/kl_loss": "kl_trained/k1"
    }
    assert config_names(VERL, {"actor_rollout_ref": {"actor": actor | {"kl_loss_type": "abs"}}}) == {}
    assert (
        config_names(VERL, {"actor_rollout_ref": {"actor": actor | {"loss_agg_mode": "seq-mean-token-sum"}}})
        == {}
    )
    assert config_names(VERL, {}) == {}


def test_what_is_another_quantity_in_this_run_is_left_out_with_the_reason(tmp_path):
    summed = {"actor_rollout_ref": {"actor": {"loss_agg_mode": "seq-mean-token-sum"}}}
    assert set(changed_meanings(VERL, summed, {})) == {"actor/entropy"}
    assert changed_meanings(VERL, TOKEN_MEAN, {"num_turns/max": 2.0}) == {}
    records = critic(0, lambda t, r: 0.5)
    for record in records:
        record["data"]["num_turns/max"] = 5
    run = import_run(read_log(json_lines(tmp_path / "log.jsonl", records)))
    assert set(run.changed_meanings) == {"response_length/mean"}
    assert "length/mean" not in run.steps[0].metrics


def test_what_a_configuration_declares_is_the_setup():
    declared = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}}}
    setup = setup_of(VERL, declared, [])
    assert (setup.learning_rate, setup.group_size, setup.algo) == (1e-6, 8, None)


def test_two_logs_and_a_stranger_among_dumps_are_errors(tmp_path):
    for name in ("a", "b"):
        json_lines(tmp_path / f"{name}.jsonl", critic(0, lambda t, r: 0.5))
    with pytest.raises(RecordError, match="several logs"):
        read_log(tmp_path)
    wrong = json_lines(tmp_path / "1.jsonl", [*rollouts(1, [1.0]), {"input": "a"}])
    with pytest.raises(RecordError, match=r"1\.jsonl, line 2, is not a rollout"):
        read_log(wrong)


def test_a_score_that_is_not_finite_is_that_of_the_mean_and_found(tmp_path):
    path = folder(tmp_path, {step: [1.0, 0.0, float("inf"), 1.0] for step in (1, 2, 3)})
    results = {each.code: each for each in diagnose_log(path).diagnosis.results()}
    assert results["OPT015"].findings[0].claim.what == "reward/mean is inf"
    assert results["RWD010"].verdict is Verdict.NOT_CHECKED
