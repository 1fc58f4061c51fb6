"""What the rules say of runs of which there are scalars alone: no cause where there is none to see."""

import pytest
from foreign import FAULTY, HEALTHY, constant, critic, flat, healthy, json_lines, trainer_state

from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.verdict import FINDING_VERDICTS, Verdict

SEEDS = range(5)


def verdicts(target):
    """The strongest verdict of each rule that said anything."""
    results = diagnose_log(target).diagnosis.results()
    return {each.code: each.verdict for each in results if each.findings}


def findings_of(target):
    return {
        code for code, verdict in verdicts(target).items() if verdict in (*FINDING_VERDICTS, Verdict.FACT)
    }


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("config_class", ["GRPOConfig", None])
def test_nothing_is_found_in_a_healthy_run(tmp_path, name, config_class):
    for seed in SEEDS:
        run = trainer_state(tmp_path / str(seed), healthy(seed, **HEALTHY[name]), config_class)
        assert verdicts(run) == {}


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_named_where_a_scalar_shows_it_and_no_other_cause_is(tmp_path, name):
    series, expected = FAULTY[name]
    for seed in SEEDS:
        assert findings_of(trainer_state(tmp_path / str(seed), healthy(seed, **series))) == expected


def test_a_kl_below_zero_is_proven_where_it_is_k3_and_suspect_where_it_is_unknown(tmp_path):
    logs = healthy(0, **FAULTY["F8 KL below zero"][0])
    said = [
        verdicts(trainer_state(tmp_path / str(named), logs, named))["KLD002"]
        for named in ("GRPOConfig", "RLOOConfig", None)
    ]
    assert said == [Verdict.PROVEN, Verdict.SUSPECT, Verdict.SUSPECT]


def test_what_bfloat16_leaves_of_a_k3_is_not_proven(tmp_path):
    run = trainer_state(tmp_path, healthy(0, kl=constant(-0.004)))
    assert verdicts(run) == {}


def test_groups_alike_at_the_end_of_a_run_that_learned_are_not_checked(tmp_path):
    run = trainer_state(tmp_path, healthy(0, frac_reward_zero_std=lambda t, r: min(1.0, 0.3 + t)))
    assert verdicts(run) == {}
    (result,) = diagnose_log(run, ["ADV004"]).diagnosis.results()
    assert (result.verdict, result.missing) == (
        Verdict.NOT_CHECKED,
        ("the share of groups that are all right",),
    )


def test_an_entropy_that_was_spent_on_reward_cannot_be_determined(tmp_path):
    run = trainer_state(tmp_path, healthy(0, entropy=lambda t, r: 1.6 * 0.01**t))
    assert verdicts(run) == {"LEN002": Verdict.CANNOT_TELL}


def test_an_entropy_that_was_spent_while_groups_are_tied_below_the_top_has_collapsed(tmp_path):
    series = {"entropy": lambda t, r: 1.6 * 0.01**t, "frac_reward_zero_std": lambda t, r: min(0.96, 0.3 + t)}
    rises = {"reward": lambda t, r: 0.4 + 0.12 * min(1, 4 * t) + r.gauss(0, 0.01)}
    assert verdicts(trainer_state(tmp_path / "a", healthy(0, **series, **rises)))["LEN002"] is Verdict.SUSPECT
    top = {"reward": lambda t, r: 0.4 + 0.58 * min(1, 4 * t) + r.gauss(0, 0.01)}
    said = verdicts(trainer_state(tmp_path / "b", healthy(0, **series, **top)))
    assert said["LEN002"] is Verdict.CANNOT_TELL


def test_brief_answers_that_pay_are_no_collapse(tmp_path):
    run = trainer_state(tmp_path, healthy(0, **{"completions/mean_length": lambda t, r: 180 * 0.05**t}))
    assert verdicts(run) == {}


def test_a_gradient_of_zero_is_suspect_where_groups_differ(tmp_path):
    assert verdicts(trainer_state(tmp_path / "a", healthy(0, grad_norm=constant(0.0)))) == {
        "OPT005": Verdict.SUSPECT
    }
    alike = healthy(0, grad_norm=constant(0.0), frac_reward_zero_std=constant(1.0), reward=flat)
    assert findings_of(trainer_state(tmp_path / "b", alike)) == {"ADV004"}


def test_a_gradient_that_is_no_number_is_reported(tmp_path):
    nan = healthy(0, grad_norm=lambda t, r: float("nan") if t > 0.9 else 1.0)
    assert verdicts(trainer_state(tmp_path, nan)) == {"OPT015": Verdict.SUSPECT}


def test_a_critic_that_explains_nothing_fits_two_causes(tmp_path):
    f13 = json_lines(tmp_path / "f13.jsonl", critic(0, lambda t, r: r.gauss(0, 0.01)))
    learns = json_lines(tmp_path / "learns.jsonl", critic(0, lambda t, r: 0.6 * t + r.gauss(0, 0.01)))
    assert verdicts(f13) == {"VAL002": Verdict.CANNOT_TELL}
    assert verdicts(learns) == {}
