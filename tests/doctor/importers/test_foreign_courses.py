"""How a number goes over a log: a reward that falls, a KL that jumps, a log of every fifth step."""

import json
import math
import random

import pytest
from command import truing
from foreign import constant, flat, healthy, json_lines, trainer_state

from dev.faults.suspect_rates import run_rates
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.report.healthy_rates import healthy_rates, suspect_rate, suspect_rate_text
from truing.doctor.verdict import FINDING_VERDICTS, Verdict


def findings_of(target):
    results = diagnose_log(target).diagnosis.results()
    return {each.code: each.findings[-1] for each in results if each.verdict in FINDING_VERDICTS}


def steps(*levels, spread=0.04):
    """A reward by the share of the run: ``(until, level)`` each."""

    def value(t, rng):
        level = next(level for until, level in levels if t < until)
        return min(1.0, max(0.0, level + rng.gauss(0, spread)))

    return value


FELL = {
    "to nothing": (steps((0.2, 0.3), (0.6, 0.6), (1, 0.0)), 37),
    "by a half": (steps((0.5, 0.9), (1, 0.45)), 31),
    "at the very end": (steps((0.88, 0.9), (1, 0.0)), 54),
    "in small batches": (steps((0.5, 0.85), (1, 0.0), spread=0.15), 31),
}


@pytest.mark.parametrize("name", FELL)
def test_a_reward_that_fell_is_reported_with_step_from_and_to(tmp_path, name):
    reward, step = FELL[name]
    for seed in range(5):
        claim = findings_of(trainer_state(tmp_path / str(seed), healthy(seed, reward=reward)))["RWD010"].claim
        assert claim.verdict is Verdict.SUSPECT
        broke = int(claim.what.rpartition(" ")[2])
        assert abs(broke - step) <= 2, claim.what


def jackpot(t, rng):
    return 1.0 if rng.random() < 0.05 else 0.0


def after_a_dip(t, rng):
    return 0.9 - 0.6 * (0.4 < t < 0.55) + rng.gauss(0, 0.05)


def learns_slowly(t, rng):
    return 0.1 + 0.5 * t + rng.gauss(0, 0.1)


def below_zero(t, rng):
    return -1.5 + rng.gauss(0, 1.0)


STAYED = {
    "rare": jackpot,
    "dip": after_a_dip,
    "slow": learns_slowly,
    "negative": below_zero,
    "drifts": lambda t, r: 0.9 - 0.1 * t + r.gauss(0, 0.02),
    "small batches": lambda t, r: float(r.random() < 0.6),
    "warm-up": lambda t, r: (0.3 if t < 0.3 else 0.5) + r.gauss(0, 0.03),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", STAYED)
def test_a_reward_that_did_not_fall_is_left_alone(tmp_path, name):
    for seed in range(12):
        findings = findings_of(trainer_state(tmp_path / str(seed), healthy(seed, reward=STAYED[name])))
        assert findings == {}, findings


def test_a_kl_that_jumps_once_is_reported_with_what_it_was_before(tmp_path):
    def jump(t, rng):
        return 14.7 if 0.5 <= t < 0.51 else 0.06 * t

    (finding,) = findings_of(trainer_state(tmp_path, healthy(0, kl=jump))).values()
    assert finding.code == "KLD003"
    assert finding.claim.what.startswith("the KL jumped to 14.7 nats per token, after at most 0.029")
    assert finding.step == 30


@pytest.mark.parametrize("last", [0.1, 1.0, 8.0])
def test_a_kl_that_grows_is_left_alone(tmp_path, last):
    for power in (0.5, 1, 2):
        run = trainer_state(tmp_path / str(power), healthy(0, kl=lambda t, r, p=power: last * t**p))
        assert findings_of(run) == {}


def test_an_entropy_that_explodes_while_the_reward_does_not_rise(tmp_path):
    widens = healthy(0, reward=flat, entropy=lambda t, r: 0.15 * 60**t)
    assert set(findings_of(trainer_state(tmp_path, widens))) == {"LEN006"}


def every_fifth(seed, alike):
    """Means over five steps of ten groups each, and the norm of the last step alone."""
    rng, logs = random.Random(seed), healthy(seed)[:40]
    for i, log in enumerate(logs):
        shares = [sum(rng.random() < alike for _ in range(10)) / 10 for _ in range(5)]
        shares = [1.0 if rng.random() < 0.6 else share for share in shares]  # many steps without signal
        log |= {"step": 5 * (i + 1), "frac_reward_zero_std": sum(shares) / 5}
        log["grad_norm"] = 0.0 if shares[-1] == 1 else 0.5
        log["reward"] = 0.9 + rng.gauss(0, 0.03)
    return logs


def test_the_norm_of_one_step_is_not_held_against_the_mean_of_five(tmp_path):
    for seed in range(20):
        assert findings_of(trainer_state(tmp_path / str(seed), every_fifth(seed, 0.8))) == {}


def test_a_norm_that_is_0_in_every_fifth_step_is_suspect_all_the_same(tmp_path):
    logs = [log | {"step": 5 * log["step"]} for log in healthy(0, grad_norm=constant(0.0))]
    assert set(findings_of(trainer_state(tmp_path, logs))) == {"OPT005"}


def test_brief_answers_to_tasks_that_are_solved_are_no_collapse(tmp_path):
    for reward in (lambda t, r: 0.15 if t < 0.02 else 0.95, constant(0.95)):
        logs = healthy(0, reward=reward, **{"completions/mean_length": lambda t, r: 300 * 0.05**t})
        assert findings_of(trainer_state(tmp_path / str(len(list(tmp_path.iterdir()))), logs)) == {}


def test_most_groups_alike_at_a_high_reward_may_be_solved_and_at_a_low_one_teach_nothing(tmp_path):
    share = {"frac_reward_zero_std": lambda t, r: min(1.0, 0.87 + r.gauss(0, 0.05))}
    high = trainer_state(tmp_path / "high", healthy(0, reward=lambda t, r: 0.93 + r.gauss(0, 0.02), **share))
    low = trainer_state(tmp_path / "low", healthy(0, reward=lambda t, r: 0.1 + r.gauss(0, 0.02), **share))
    assert findings_of(high) == {}
    assert set(findings_of(low)) == {"ADV004"}


def test_a_table_with_reward_its_deviation_and_kl_is_enough(tmp_path):
    rows = [
        f"{i},{0.6 if i < 20 else 0.0},{0.4 if i < 20 else 0.0},{0.05 if i != 9 else 14.7}" for i in range(40)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["step,reward,reward_std,kl", *rows]))
    findings = findings_of(tmp_path / "a.csv")
    assert set(findings) == {"RWD010", "KLD003", "ADV004"}
    assert "from 0.6 to 0; it broke at step 20" in findings["RWD010"].claim.what


def test_a_log_that_goes_back_is_of_the_run_that_was_resumed(tmp_path):
    logs = healthy(0)
    anew = [log | {"reward": 0.77} for log in logs[40:50]]
    judged = diagnose_log(json_lines(tmp_path / "a.jsonl", [*logs[:50], *anew]))
    rewards = {step.step + 1: step.metrics["reward/mean"] for step in judged.imported.steps}
    assert (len(rewards), rewards[40], rewards[41]) == (50, logs[39]["reward"], 0.77)
    assert judged.imported.notes == [
        "the log goes back from 50 to 41: of a step with two records the later is read"
    ]


def test_rows_of_evaluations_and_columns_that_come_late_change_nothing(tmp_path):
    logs = healthy(0, reward=FELL["to nothing"][0])
    mixed = []
    for i, log in enumerate(logs):
        mixed.append({name: x for name, x in log.items() if i > 20 or name != "kl"})
        mixed += [{"eval_reward": 0.1, "eval_kl": 90.0, "step": log["step"]}] * (i % 7 == 0)
    assert set(findings_of(json_lines(tmp_path / "a.jsonl", mixed))) == {"RWD010"}


def test_nan_rewards_are_found_and_are_no_fall(tmp_path):
    logs = healthy(0, reward=lambda t, r: math.nan if r.random() < 0.3 else 0.5)
    assert set(findings_of(trainer_state(tmp_path, logs))) == {"OPT015"}


def test_a_trainer_state_of_supervised_fine_tuning_is_read_and_clean(tmp_path):
    logs = [
        {"loss": 2.0 * 0.9**i, "grad_norm": 0.5, "learning_rate": 1e-4, "mean_token_accuracy": 0.5}
        | {"entropy": 2.0 * 0.5**i, "num_tokens": 1000.0 * i, "epoch": 0.1 * i, "step": 5 * i}
        for i in range(1, 20)
    ]
    judged = diagnose_log(trainer_state(tmp_path, logs, None))
    assert (judged.imported.trainer, judged.imported.steps[0].setup.algo, judged.imported.unknown) == (
        "transformers",
        "sft",
        [],
    )
    assert findings_of(tmp_path) == {}


def test_a_suspicion_says_how_often_healthy_runs_show_it(tmp_path):
    logs = healthy(0, reward=FELL["to nothing"][0])
    outcome = truing("check", trainer_state(tmp_path, logs))
    assert outcome.code == 0
    (_, runs), (_, logs) = (healthy_rates()[of]["RWD010"] for of in ("runs", "logs"))
    assert f"healthy   also in 0 of {runs} healthy runs and 0 of {logs} healthy logs" in outcome.out
    asked = json.loads(truing("check", tmp_path, "--json").out)["findings"][0]
    assert asked["healthy"] == {"runs": {"shown": 0, "of": runs}, "logs": {"shown": 0, "of": logs}}
    assert truing("check", tmp_path, "--strict").code == 1


def test_published_logs_are_reported_as_they_are_labelled(data):
    logs = [json.loads(line) for line in (data / "training_logs" / "index.jsonl").read_text().splitlines()]
    expected = {
        each["run"]: (each["label_from_reward"], set(findings_of(data / "training_logs" / each["file"])))
        for each in logs
        if "label_from_reward" in each
    }
    for run, (label, codes) in expected.items():
        assert ("RWD010" in codes) is (label in ("collapsed", "degraded")), run
        if label.startswith("healthy"):
            assert codes <= {"LEN003"}, run  # half of all rollouts are cut: a fact about some of them


def test_the_healthy_runs_of_the_reports_are_those_of_the_detection_matrix(request):
    page = (request.config.rootpath / "docs" / "detection-matrix.md").read_text(encoding="utf-8")
    assert run_rates(page) == healthy_rates()["runs"], "python -m dev.faults.suspect_rates counts them anew"


def test_a_rate_is_told_of_what_a_rule_judged():
    assert suspect_rate("LEN004")["runs"]["shown"] == 1
    assert "logs" not in suspect_rate("MSK003")  # no log has masks
    assert suspect_rate("XYZ001") == {}
    assert suspect_rate_text("XYZ001") == "how often healthy runs show it was not counted yet"
