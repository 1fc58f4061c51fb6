"""Tables of scalars, OpenRLHF's console, and what is wrong with files."""

import json
import math

import pytest
from foreign import HEALTHY, healthy, json_lines, trainer_state

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.steps import import_run
from truing.doctor.verdict import Verdict
from truing.errors import RecordError


def numbers(path, run=None):
    return {step.step + 1: dict(step.metrics) for step in import_run(read_log(path, run)).steps}


def csv(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_blank_cell_is_absent_and_a_nan_is_a_value(tmp_path):
    path = csv(tmp_path / "a.csv", "step,reward/mean,lr,note", "1,0.5,,x", "2,nan,1e-3,", "3,1e999,1e-3,y")
    read = numbers(path)
    assert (read[1], read[3]) == ({"reward/mean": 0.5}, {"reward/mean": math.inf, "lr": 1e-3})
    assert math.isnan(read[2]["reward/mean"])


def test_nan_that_comes_and_goes_is_filled_in_and_said(tmp_path):
    rows = [f"{i},{'nan' if i % 2 else 0.5},{0.1 if i % 2 else 'NaN'}" for i in range(20)]
    path = csv(tmp_path / "a.csv", "step,reward,kl", *rows)
    assert numbers(path)[3] == {"kl/any": 0.1}
    notes = diagnose_log(path).imported.notes
    assert notes == [
        f"{name}: 10 cells with NaN between numbers, read as not logged (the first: {path}, line {line})"
        for name, line in (("kl", 2), ("reward", 3))
    ]


@pytest.mark.parametrize(
    ("name", "table", "encoding"),
    [
        ("a.csv", "step;reward;kl\n1;0.5;0.25\n", "utf-8"),
        ("a.csv", "step;reward;kl\n1;0,5;2,5e-1\n", "utf-8"),
        ("a.csv", "step\treward\tkl\n1\t0.5\t0.25\n", "utf-16"),
        ("a.tsv", "step\treward\tkl\n1\t0.5\t0.25\n", "utf-8-sig"),
        ("a.csv", "step, reward, kl\n1, 0.5, 0.25\n", "utf-8"),
        ("a.csv", "STEP,Reward,KL\n1,0.5,0.25\n", "utf-8"),
        ("a.csv", "# my run, seed 3\n\nIteration,Reward,kl\n1,0.5,0.25\n\n,,\n", "utf-8"),
        ("a.csv", 'step,reward,kl,text\n1,0.5,0.25,"two\n\nlines; here"\n', "utf-8"),
    ],
)
def test_tables_of_other_programs_and_languages_are_the_same_table(tmp_path, name, table, encoding):
    (tmp_path / name).write_text(table, encoding=encoding)
    assert numbers(tmp_path / name) == {1: {"reward/mean": 0.5, "kl/any": 0.25}}


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85"])
def test_lines_end_at_line_feeds_alone(tmp_path, inside):
    (tmp_path / "a.jsonl").write_text(f'{{"step": 1, "reward": 0.5, "kl": 0.25, "text": "a{inside}b"}}\r\n')
    table = csv(tmp_path / "a.csv", "step,reward,kl,text", f"1,0.5,0.25,a{inside}b")
    assert numbers(tmp_path / "a.jsonl") == numbers(table) == {1: {"reward/mean": 0.5, "kl/any": 0.25}}


def test_a_comma_is_before_decimals_only_where_semicolons_separate(tmp_path):
    assert numbers(csv(tmp_path / "a.csv", "step\treward\tkl", "1\t1,234\t0.25")) == {1: {"kl/any": 0.25}}


def test_a_row_with_a_cell_too_few_is_reported_with_its_own_line(tmp_path):
    with pytest.raises(RecordError, match="line 4, has another number of cells"):
        read_log(csv(tmp_path / "a.csv", "# note", "step,reward,kl", "1,0.5,0.25", "2,0.5"))


def test_our_own_names_are_read_as_they_are(tmp_path):
    records = [{"step": step, "reward/mean": 0.5, "mine": 1.0} for step in (0, 10)]
    run = import_run(read_log(json_lines(tmp_path / "a.jsonl", records)))
    assert (run.trainer, run.matched, run.unknown) == ("plain", {"reward/mean": "reward/mean"}, ["mine"])
    assert [step.step for step in run.steps] == [-1, 9]  # told as 0 and 10


def test_a_history_of_wandb_counts_the_trainers_steps(tmp_path):
    path = csv(
        tmp_path / "history.csv",
        ",_step,_timestamp,train/global_step,train/grad_norm,train/frac_reward_zero_std,eval/reward",
        "0,0,1.7e9,5,0.5,0.25,",
        "1,1,1.7e9,5,,,0.9",
        "2,2,1.7e9,10,0.75,0.5,",
    )
    assert numbers(path) == {
        5: {"grad/norm": 0.5, "group/zero_variance_share": 0.25},
        10: {"grad/norm": 0.75, "group/zero_variance_share": 0.5},
    }


def test_a_chart_of_wandb_is_of_the_run_that_is_named(tmp_path):
    path = csv(
        tmp_path / "chart.csv",
        '"Step","a - train/kl","a - train/kl__MIN","a - train/kl__MAX","b - train/kl"',
        *(f'"{step}","0.{step}","9","9","8"' for step in (1, 2)),
    )
    with pytest.raises(RecordError, match=r"several runs(.|\n)*a, b"):
        read_log(path)
    assert [point.values for point in read_log(path, "a").points] == [{"train/kl": 0.1}, {"train/kl": 0.2}]


def test_openrlhf_is_read_from_its_console(tmp_path):
    status = {"policy_loss": -0.1, "actor_lr": 1e-6, "kl": 0.0, "rollout/reward_mean": 0.25}
    status |= {"rollout/reward_std": 0.5, "rollout/truncated_rate": 0.125, "reward": 0.3}
    status |= {"rollout/num_samples": 64.0, "actor_grad_norm": float("nan"), "timing/broadcast": 1.5}
    text = f"(pid=1) INFO 08-13 ppo_trainer.py:547] ✨ Global step 3: {status}"
    path = csv(tmp_path / "out.log", "Episode [1/1]: 10%", text, "saved")
    run = import_run(read_log(path))
    (step,) = run.steps
    assert run.trainer == "openrlhf"
    assert step.step == 2
    assert step.metrics["grad/norm"] != step.metrics["grad/norm"]
    assert {name: x for name, x in step.metrics.items() if x == x} == {
        "lr": 1e-6,
        "reward/mean": 0.25,
        "reward/std": 0.5,
        "truncated/share": 0.125,
        "kl/any": 0.0,
    }
    assert list(run.unused) == ["policy_loss", "rollout/num_samples", "timing/broadcast"]
    assert run.unknown == []
    assert set(run.changed_meanings) == {"reward"}


def test_rewards_that_never_differ_are_seen_in_their_deviation(tmp_path):
    lines = [f"Global step {i}: {{'rollout/reward_mean': 0.0, 'rollout/reward_std': 0.0}}" for i in (1, 2, 3)]
    results = diagnose_log(csv(tmp_path / "out.log", *lines), ["RWD006"]).diagnosis.results()
    assert [(each.verdict, len(each.findings)) for each in results] == [(Verdict.CANNOT_TELL, 1)]


def test_a_step_may_be_reported_twice_and_alike_only(tmp_path):
    same = [{"step": 1, "lr": 0.1}, {"step": 1, "lr": 0.1, "reward/mean": 1.0}]
    assert numbers(json_lines(tmp_path / "a.jsonl", same)) == {1: {"lr": 0.1, "reward/mean": 1.0}}
    with pytest.raises(RecordError, match=r"step 1 is logged twice(.|\n)*b\.jsonl, line 2"):
        import_run(read_log(json_lines(tmp_path / "b.jsonl", [*same[:1], {"step": 1, "lr": 0.2}])))


def test_an_evaluation_is_not_the_training(tmp_path):
    logs = [*healthy(0)[:3], {"eval_reward": 0.9, "eval_entropy": 0.1, "step": 3}]
    run = import_run(read_log(trainer_state(tmp_path, logs)))
    assert run.steps[2].metrics["entropy/mean"] == logs[2]["entropy"]
    assert list(run.unused) == ["clip_ratio/region_mean", "eval_reward", "eval_entropy"]


def test_supervised_fine_tuning_has_no_entropy_of_what_was_drawn(tmp_path):
    logs = [{"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-4, "entropy": 1.5, "step": 1}]
    run = import_run(read_log(trainer_state(tmp_path, logs, None)))
    assert run.trainer == "transformers"
    assert run.steps[0].metrics == {"loss/total": 2.0, "grad/norm": 1.0, "lr": 1e-4}


def test_the_last_checkpoint_is_read(tmp_path):
    trainer_state(tmp_path, healthy(0)[:9])
    trainer_state(tmp_path, healthy(0)[:10])
    assert len(import_run(read_log(tmp_path)).steps) == 10


WRONG = {
    "a.jsonl": ('{"step": 1, "lr": 0.1}\n{"step": 2, "lr"\n', r"line 2, is not JSON"),
    "b.jsonl": ("", "the log is empty"),
    "c.jsonl": ('{"lr": 0.1}\n', "has no step"),
    "d.jsonl": ('{"step": 1.5, "lr": 0.1}\n', "an invalid step"),
    "e.jsonl": ('{"step": null, "lr": 0.1}\n{"lr": 0.1}\n', "no record of e.jsonl has a step"),
    "h.csv": ("step,lr\n1,0.000\n2,0.000\n", "printed as 0 with few decimals"),
    "f.jsonl": ('{"step": 1, "speed": 0.1}\n', r"no metric of f\.jsonl is known"),
    "g.jsonl": ("[1]\n", "not a JSON object"),
    "a.csv": ("step,lr\n1,0.1,7\n", "line 2, has another number of cells"),
    "b.csv": ("step,lr\n", "has no row"),
    "a.json": ('{"a": 1}', "has no log"),
    "a.log": ("nothing\n", "has no metrics"),
    "a.db": ("nothing", "is not a project of trackio"),
    "a.wandb": ("nothing", "is not a log of W&B"),
    "a.png": ("nothing", "neither a run of Truing nor a known log"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name):
    text, message = WRONG[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(RecordError, match=message) as error:
        import_run(read_log(tmp_path / name))
    assert error.value.expected or error.value.remedy


def test_an_empty_folder_and_none_say_what_is_read(tmp_path):
    with pytest.raises(RecordError, match=r"trainer_state\.json(.|\n)*OpenRLHF"):
        read_log(tmp_path)
    with pytest.raises(RecordError, match="does not exist"):
        read_log(tmp_path / "none")


def test_the_state_of_a_trainer_may_hold_nan(tmp_path):
    logs = healthy(0, **HEALTHY["H1 healthy"])[:2]
    logs[1]["grad_norm"] = float("nan")
    path = trainer_state(tmp_path, logs)
    assert "NaN" in next(path.rglob("*.json")).read_text()
    assert json.dumps(import_run(read_log(path)).steps[1].metrics["grad/norm"]) == "NaN"


def test_a_name_that_is_nearly_one_of_ours_is_asked_about(tmp_path):
    head, rows = "step,length/mean,rewards_mean,entropy_sampled,colour", ("1,8,0.5,1.2,3", "2,8,0.5,1.2,3")
    run = import_run(read_log(csv(tmp_path / "a.csv", head, *rows)))
    assert run.suggestions == {"rewards_mean": "reward/mean", "entropy_sampled": "entropy/sampled"}
    judged = diagnose_log(tmp_path / "a.csv")
    hint = "did you mean reward/mean by rewards_mean, entropy/sampled by entropy_sampled? Rename"
    assert any(text.startswith(hint) for text, _ in judged.lines())
    assert judged.facts()["near"] == dict(run.suggestions)


def test_where_no_name_is_known_the_error_asks_what_was_meant(tmp_path):
    with pytest.raises(RecordError) as error:
        import_run(read_log(csv(tmp_path / "a.csv", "step,Rewards_Mean", "1,0.5")))
    assert "did you mean reward/mean by Rewards_Mean?" in error.value.remedy


def test_what_is_read_already_and_what_is_another_trainers_gets_no_hint(tmp_path):
    path = csv(tmp_path / "a.csv", "step,reward/mean,rewardmean", "1,0.5,0.5")
    assert import_run(read_log(path)).suggestions == {}
    assert (
        import_run(
            read_log(trainer_state(tmp_path, [each | {"reward_std": 1.0} for each in healthy(0)]))
        ).suggestions
        == {}
    )
