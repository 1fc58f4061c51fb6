"""Logs with holes: no rule is clean on a number that is NaN, infinite, filled in or rounded away."""

import json
import math
import time

import pytest
from command import truing
from foreign import constant, critic, flat, healthy, json_lines, trainer_state

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.log import MAX_COLUMNS
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.errors import RecordError

READERS = {  # rules that read a column of TRL
    "reward": {"RWD010"},
    "kl": {"KLD002", "KLD003"},
    "entropy": {"LEN002", "LEN006"},
    "grad_norm": {"OPT005"},
    "completions/mean_length": {"LEN001"},
    "completions/clipped_ratio": {"LEN003"},
    "frac_reward_zero_std": {"ADV004"},
}
MUST_BE_FINITE = ("reward", "kl", "entropy", "grad_norm", "loss")


def results(target):
    return {each.code: each for each in diagnose_log(target).diagnosis.results()}


def found(target):
    return {code for code, each in results(target).items() if each.verdict in FINDING_VERDICTS}


def spoiled(logs, column, value, where):
    return [log | {column: value} if where(i) else log for i, log in enumerate(logs)]


WHERE = {
    "always": lambda i: True,
    "from the middle on": lambda i: i >= 30,
    "at first": lambda i: i < 30,
    "once": lambda i: i == 40,
    "at the end": lambda i: i == 59,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", READERS)
def test_no_rule_is_clean_on_a_number_that_is_not_finite(tmp_path, column, value, where):
    run = trainer_state(tmp_path, spoiled(healthy(0), column, value, WHERE[where]))
    judged = results(run)
    for code in READERS[column]:
        assert judged[code].verdict is Verdict.NOT_CHECKED
        assert "not finite in" in judged[code].missing[0]
    if column in MUST_BE_FINITE:
        assert judged["OPT015"].findings[0].claim.what == f"{column} is {value:g}"
        assert judged["OPT015"].findings[0].step == next(i for i in range(60) if WHERE[where](i))
        assert not judged["RWD010"].findings


@pytest.mark.parametrize("column", ["entropy", "kl", "completions/mean_length"])
def test_a_column_of_zeros_is_not_a_measurement(tmp_path, column):
    judged = results(trainer_state(tmp_path, healthy(0, **{column: constant(0.0)})))
    for code in READERS[column]:
        assert code not in judged or judged[code].verdict is Verdict.NOT_CHECKED
    notes = diagnose_log(tmp_path).imported.notes
    assert notes == [f"{column} is 0 in all of 60 records: filled in, or rounded; read as not logged"]


def test_a_trend_is_judged_where_its_number_was_logged_last(tmp_path):
    fell = healthy(0, reward=lambda t, r: (0.9 if t < 0.5 else 0.0) + r.gauss(0, 0.02))
    del fell[-1]["reward"]
    assert found(trainer_state(tmp_path, fell)) == {"RWD010"}


@pytest.mark.parametrize("count", [1, 3, 5])
def test_no_trend_is_clean_over_a_few_steps(tmp_path, count):
    judged = results(trainer_state(tmp_path, healthy(0)[:count]))
    for code in ("LEN001", "LEN002", "LEN006", "RWD010", "KLD003"):
        assert judged[code].verdict is Verdict.NOT_CHECKED, code


GRADIENTS = {
    "with everything": {},
    "without an entropy": {"entropy": None},
    "with a deviation alone": {"entropy": None, "frac_reward_zero_std": None, "reward_std": constant(0.3)},
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_of_0_beside_unequal_rewards_is_found_and_no_rate_helps(tmp_path, name):
    logs = healthy(0, grad_norm=constant(0.0), **GRADIENTS[name])
    assert found(trainer_state(tmp_path, logs)) == {"OPT005"}
    output = json.loads(truing("why", tmp_path, "--json").out)
    assert not output["reward"]["learns"]
    assert not any("learning rate" in each["advice"]["text"] for each in output["causes"])
    assert "look at this first: 60 steps in a row" in truing("why", tmp_path).out


def test_a_gradient_of_0_is_not_checked_where_nothing_tells_whether_rewards_differ(tmp_path):
    logs = healthy(0, grad_norm=constant(0.0), entropy=None, frac_reward_zero_std=None)
    result = results(trainer_state(tmp_path, logs))["OPT005"]
    assert (result.verdict, result.missing) == (
        Verdict.NOT_CHECKED,
        ("whether rewards differ, beside a gradient norm of exactly 0",),
    )
    output = truing("why", tmp_path).out
    assert "the gradient norm is exactly 0 in all of 60 steps" in output
    assert "ten times the learning rate" not in output


@pytest.mark.parametrize("column", ["kl", "grad_norm", "loss"])
def test_a_run_with_a_nan_is_not_said_to_learn(tmp_path, column):
    run = trainer_state(tmp_path, spoiled(healthy(0), column, math.nan, lambda i: i >= 30))
    outcome = truing("why", run)
    assert outcome.out.startswith(f"train: look at this first: {column} is nan (train 31)")
    assert "the run learns" not in outcome.out
    assert "next: train again" not in outcome.out


def test_a_reward_that_is_never_finite_is_said_so(tmp_path):
    run = trainer_state(tmp_path, healthy(0, reward=constant(math.inf)))
    assert "is never a finite number" in truing("why", run).err


def test_a_reward_that_fell_in_few_records_is_said_to_have_fallen(tmp_path):
    rows = [{"step": i, "reward": 0.95 if i < 4 else 0.0} for i in range(8)]
    outcome = truing("why", json_lines(tmp_path / "a.jsonl", rows))
    assert outcome.out.startswith("train: the reward fell from 0.95 to 0")
    assert "ten times" not in outcome.out


def losses(*values, **also):
    return [
        {"loss": loss, "grad_norm": 0.5, "learning_rate": 1e-5, "step": i} | also
        for i, loss in enumerate(values, 1)
    ]


FALLS = [2.0 * 0.97**i for i in range(30)]
SUPERVISED = {
    "0 from the start": ([0.0] * 30, {"OPT016"}, "the loss is exactly 0 from step 1 on"),
    "0 after one": ([1.8, *[0.0] * 30], {"OPT016"}, "from step 2 on, after 1.8"),
    "0 at the end": ([*FALLS, *[0.0] * 6], {"OPT016"}, "from step 31 on, after 0.8"),
    "jumps to ln V": (
        [*FALLS, *[11.9] * 30],
        {"OPT016"},
        "to 11.9 at step 31, and stays there: about that",
    ),
    "jumps": ([*FALLS, *[4.5] * 30], {"OPT016"}, "to 4.5 at step 31"),
    "learns": (FALLS, set(), ""),
    "is memorized": ([2 * 0.7**i if i < 30 else 0.0 for i in range(50)], set(), ""),
    "spike": ([*FALLS, 9.0, 5.0, *[0.8] * 10], set(), ""),
    "starts high": ([12.0 * 0.9**i + 1 for i in range(60)], set(), ""),
    "flat": ([1.5 + 0.01 * (i % 3) for i in range(60)], set(), ""),
    "new data": ([*[0.6] * 20, *[1.4] * 20], set(), ""),
}


@pytest.mark.parametrize("name", SUPERVISED)
@pytest.mark.parametrize("also", [{}, {"mean_token_accuracy": 0.7}])
def test_a_loss_of_demonstrations_that_broke_is_found(tmp_path, name, also):
    values, expected, what = SUPERVISED[name]
    judged = results(json_lines(tmp_path / "a.jsonl", losses(*values, **also)))
    assert {code for code, each in judged.items() if each.findings} == expected
    assert what in "".join(each.claim.what for each in judged["OPT016"].findings)


def test_a_loss_of_0_is_usual_in_reinforcement_learning_and_on_preferences(tmp_path):
    assert found(trainer_state(tmp_path / "a", healthy(0, loss=constant(0.0)))) == set()
    rows = losses(*[0.0] * 30, **{"rewards/chosen": 1.0, "rewards/rejected": 0.0})
    assert found(json_lines(tmp_path / "b.jsonl", rows)) == set()


VERL = "step:{} - actor/pg_loss:{:.3f} - actor/lr:0.000 - actor/grad_norm:{} - critic/score/mean:{:.3f}"


def test_a_printed_rate_of_0_with_three_decimals_is_unknown(tmp_path):
    path = tmp_path / "verl.log"
    path.write_text("\n".join(VERL.format(i, 0.01, "0.000", 0.4 + 0.001 * (i % 7)) for i in range(1, 31)))
    judged = diagnose_log(path)
    assert all(step.metrics.keys() == {"reward/mean"} for step in judged.imported.steps)
    assert len([note for note in judged.imported.notes if "is printed as 0 with few decimals" in note]) == 2
    assert "learning rate 0" not in truing("why", path).out
    states = {each["name"]: each["state"] for each in json.loads(truing("why", path, "--json").out)["causes"]}
    assert states["rate_zero"] == "cannot tell"


def test_a_column_that_no_rule_reads_must_be_finite_too(tmp_path):
    logs = critic(0, lambda t, r: 0.6 * t)
    for log in logs[20:]:
        log["data"] |= {"critic/vf_loss": None, "timing_s/step": None, "val-core/reward": None}
    (finding, *more) = results(json_lines(tmp_path / "a.jsonl", logs))["OPT015"].findings
    assert (finding.claim.what, finding.step, len(more)) == ("critic/vf_loss is nan", 20, 39)


def table(path, header, *rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def notes_of(path):
    return diagnose_log(path).imported.notes


def test_what_was_skipped_is_one_line_with_count_reason_and_first_place(tmp_path):
    rows = [f"{i},0.5,{'--' if i in (4, 7) else 0.1},9" for i in range(12)]
    path = table(tmp_path / "a.csv", "step,reward,kl,kl", *rows)
    assert notes_of(path) == [
        "2 columns are named kl: column 3 is read, column 4 left out",
        f"kl: 2 values are not numbers, such as --, and are read as not logged (the first: {path}, line 6)",
    ]
    logs = critic(0, lambda t, r: 0.6 * t)
    logs[6]["step"] = None
    path = json_lines(tmp_path / "verl.jsonl", logs)
    assert notes_of(path) == [f"1 record has no step and is skipped (the first: {path}, line 7)"]
    assert notes_of(path)[0] in truing("check", path).out


@pytest.mark.parametrize(("opens", "closes"), [(12, None), (12, 20)])
def test_a_quote_that_does_not_close_is_named_with_its_line(tmp_path, opens, closes):
    quotes = {opens: '"'}, {closes: '"'}
    rows = [f"{i},0.5,{quotes[0].get(i, '')}0.1{quotes[1].get(i, '')}" for i in range(30)]
    with pytest.raises(RecordError, match="line 14, does not end as a row"):
        read_log(table(tmp_path / "a.csv", "step,reward,kl", *rows))


def test_a_cell_may_hold_many_texts(tmp_path):
    rows = [f'{i},0.{i % 5},"{"x" * 140_000}"' for i in range(12)]
    assert len(diagnose_log(table(tmp_path / "a.csv", "step,reward,texts", *rows)).imported.steps) == 12


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_table_of_parameters_is_refused_at_once(tmp_path, name):
    wide = {f"p{i}": 1.0 for i in range(20 * MAX_COLUMNS)}
    if name == "a.csv":
        table(tmp_path / name, ",".join(["step", *wide]), ",".join(["1"] * (len(wide) + 1)))
    else:
        json_lines(tmp_path / name, [{"step": 1} | wide])
    started = time.process_time()
    with pytest.raises(RecordError, match="too many columns"):
        read_log(tmp_path / name)
    assert time.process_time() - started < 2


def test_a_long_name_is_cut_in_the_report(tmp_path):
    path = table(tmp_path / "a.csv", f"step,reward,{'a.' * 50_000}b", *(f"{i},0.5,1" for i in range(12)))
    assert max(len(text) for text, _ in diagnose_log(path).lines()) < 300


def test_healthy_logs_have_no_note(tmp_path):
    for seed, series in enumerate(({}, {"kl": None}, {"reward": flat})):
        assert notes_of(trainer_state(tmp_path / str(seed), healthy(seed, **series))) == []
