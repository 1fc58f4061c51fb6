"""Runs go seed by seed until the verdict is settled, and no interruption loses a result."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from labs import CLEAR, declared, lab_in, run_of

from truing.errors import LabError, RecordError
from truing.lab.report.text import step_lines
from truing.lab.run import runner
from truing.lab.run.experiment import run_hypothesis
from truing.lab.run.plan import plan
from truing.lab.run.runner import declare_experiment, pending_arm_jobs, retry_jobs, run_jobs
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import CheckResult, Declaration, Ledger, Run
from truing.lab.verdicts.verdict import judge


@dataclass
class Done:
    """A run that ended with the given outcome."""

    name: str
    spec: dict[str, Any]
    folder: Path
    found: dict[str, Any]
    resumed: bool = False
    began: float = 0.0
    peak_bytes: int = 7

    def outcome(self):
        if self.found["outcome"] == "stopped":
            raise RecordError(f"{self.name} was stopped", got=self.found["error"])
        return dict(self.found)


@dataclass
class FakePool:
    """Ends each run at once; ``ends`` says how, by arm and seed."""

    folder: Path
    ends: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    places: int = 2
    running: list[Done] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def is_running(self, name):
        return any(each.name == name for each in self.running)

    def has_free_slot(self):
        return len(self.running) < self.places

    def start(self, name, spec):
        self.started.append(name)
        result = self.ends.get(name, {"outcome": "finished", "error": ""})
        self.running.append(Done(name, spec, self.folder / name, result))
        return self.running[-1]

    def stop(self):
        self.running = []

    def pop_ended(self):
        result, self.running = self.running[:1], self.running[1:]
        return result


@pytest.fixture
def lab(tmp_path):
    return lab_in(tmp_path, {"h01": CLEAR})


@pytest.fixture
def ledger(lab):
    written = Ledger(lab.ledger_folder)
    yield written
    written.close()


@pytest.fixture
def values(monkeypatch):
    """The reward of each run by name; 0 by default, as for the baseline.

    The tasks of no run have equal rewards: those could not distinguish the arms.
    """
    table: dict[str, float] = {}
    counter = itertools.count(1)

    def measure(run):
        value, spread = table.get(run.parent.name, 0.0), next(counter) / 1000
        tasks = {"a": value - spread, "b": value + spread}
        return {"metrics": {"eval/reward": value}, "tasks": tasks, "curve": [value]}

    monkeypatch.setattr(runner, "run_measures", measure)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.0)
    return table


def keys(lab, label, seeds):
    begun = lab.history.entries_of(Declaration, "h01")
    arms = runner.arms_of(lab, lab.hypotheses["h01"], begun[0] if begun else None)
    return [arms[label].job(seed).key for seed in range(seeds)]


def with_changes(folder, *changes):
    """The lab once these changes are in its lab.toml."""
    path = folder / "lab.toml"
    path.write_text(f"{path.read_text()}changes = {json.dumps(changes)}\n")
    return open_lab(folder)


def check_name(lab):
    return f"check-{keys(lab, 'baseline', 1)[0].partition('-')[0]}"


def quiet(kind, facts):
    pass


def test_a_clear_effect_ends_early_and_runs_go_seed_by_seed(lab, ledger, values):
    values |= dict.fromkeys(keys(lab, "changed", 10), 1.0)
    pool = FakePool(lab.runs_folder)
    after = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    verdict = judge(after, lab.hypotheses["h01"])
    assert (verdict.verdict, verdict.pairs) == ("VALIDATED", 7)
    # at an error of 1/40 seven pairs within ±1 are the fewest; of the eighth no more than what was under way
    pairs = [
        key for both in zip(keys(lab, "baseline", 10), keys(lab, "changed", 10), strict=True) for key in both
    ]
    assert pool.started == pairs[: len(pool.started)]
    assert len(pool.started) <= 16


def test_a_clear_null_ends_early_too(lab, ledger, values):
    after = run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder), ledger, quiet)
    verdict = judge(after, lab.hypotheses["h01"])
    assert (verdict.verdict, verdict.pairs) == ("INVALIDATED", 7)


def test_what_the_ledger_has_is_not_run_again(lab, ledger, values):
    values |= dict.fromkeys(keys(lab, "changed", 10), 1.0)
    hypothesis = lab.hypotheses["h01"]
    lab = declare_experiment(lab, hypothesis, ledger, underpowered=False)
    for seed in range(4):
        for label, value in (("baseline", 0.0), ("changed", 1.0)):
            lab = lab.with_entry(ledger.write(run_of(lab, hypothesis, label, seed, value)))
    pool = FakePool(lab.runs_folder)
    run_jobs(open_lab(lab.root), "h01", pending_arm_jobs(hypothesis), pool, ledger, quiet)
    assert not set(pool.started) & set(keys(lab, "baseline", 4) + keys(lab, "changed", 4))
    assert pool.started[:2] == [keys(lab, "baseline", 5)[4], keys(lab, "changed", 5)[4]]


def test_a_baseline_is_shared_between_hypotheses(tmp_path, values):
    other = CLEAR.replace("2e-3", "3e-3")
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": other}, "family = 2")
    ledger, pool = Ledger(lab.ledger_folder), FakePool(lab.runs_folder)
    lab = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    done, before = set(lab.history.runs()), len(pool.started)
    run_hypothesis(lab, lab.hypotheses["h02"], pool, ledger, quiet)
    ledger.close()
    assert set(keys(lab, "baseline", 7)) <= done
    assert pool.started[before:]
    assert not set(pool.started[before:]) & done


def test_a_validated_arm_in_lab_toml_is_the_baseline_of_the_next(tmp_path, values):
    """What has begun keeps its own, and its runs count for the next."""
    other = CLEAR.replace('["grpo.learning_rate=2e-3"]', '["grpo.group_size=8"]')
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": other}, "family = 2")
    ledger, pool = Ledger(lab.ledger_folder), FakePool(lab.runs_folder)
    values |= dict.fromkeys(keys(lab, "changed", 10), 1.0)
    lab = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    validated, before = judge(lab, lab.hypotheses["h01"]).facts(), len(pool.started)
    lab = with_changes(tmp_path, "grpo.learning_rate=2e-3")
    assert judge(lab, lab.hypotheses["h01"]).facts() == validated
    assert validated["verdict"] == "VALIDATED"
    lab = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    assert len(pool.started) == before, "the first is settled"
    lab = run_hypothesis(lab, lab.hypotheses["h02"], pool, ledger, quiet)
    ledger.close()
    assert not set(keys(lab, "changed", 8)) & set(pool.started[before:]), (
        "the arm's runs are the baseline's now"
    )
    assert tuple(lab.history.entries_of(Declaration, "h02")[0].baseline) == ("grpo.learning_rate=2e-3",)
    assert judge(lab, lab.hypotheses["h01"]).facts() == validated


def test_a_crashed_arm_is_reported_and_never_averaged_away(lab, ledger, values):
    values |= dict.fromkeys(keys(lab, "changed", 10), 1.0)
    broken = keys(lab, "changed", 10)[2]
    pool = FakePool(lab.runs_folder, {broken: {"outcome": "crashed", "error": "loss is NaN"}})
    after = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    verdict = judge(after, lab.hypotheses["h01"])
    assert (verdict.verdict, verdict.pairs) == ("INCONCLUSIVE", 2)
    assert "changed, seed 2, crashed: loss is NaN" in verdict.because
    assert len(pool.started) < 10, "without that pair nothing can be decided, so nothing more is run"

    pool = FakePool(lab.runs_folder)
    after = run_hypothesis(open_lab(lab.root), lab.hypotheses["h01"], pool, ledger, quiet, retry=True)
    assert pool.started[0] == broken
    assert judge(after, lab.hypotheses["h01"]).verdict == "VALIDATED"


def test_a_crash_of_one_arm_leaves_the_others(tmp_path, values):
    two = CLEAR.replace(', arm = "changed"', "") + 'other = ["grpo.learning_rate=4e-3"]\n'
    lab = lab_in(tmp_path, {"h01": two})
    ledger = Ledger(lab.ledger_folder)
    values |= dict.fromkeys(keys(lab, "other", 10), 1.0)
    ends = {keys(lab, "changed", 1)[0]: {"outcome": "crashed", "error": "no memory"}}
    after = run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder, ends), ledger, quiet)
    ledger.close()
    verdict = judge(after, lab.hypotheses["h01"])
    assert verdict.verdict == "VALIDATED"
    assert "no memory" in " ".join(verdict.notes)


def test_a_run_that_was_stopped_is_no_crash_and_ends_the_command(lab, ledger, values):
    first = keys(lab, "baseline", 1)[0]
    pool = FakePool(lab.runs_folder, {first: {"outcome": "stopped", "error": "No space left on device"}})
    with pytest.raises(RecordError, match="No space left"):
        run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    assert not open_lab(lab.root).history.entries_of(Run)
    after = run_hypothesis(
        open_lab(lab.root), lab.hypotheses["h01"], FakePool(lab.runs_folder), ledger, quiet
    )
    assert judge(after, lab.hypotheses["h01"]).verdict == "INVALIDATED"


def test_a_full_disk_loses_no_line_of_the_ledger(lab, ledger, values, monkeypatch):
    hypothesis = lab.hypotheses["h01"]
    lab = declare_experiment(lab, hypothesis, ledger, underpowered=False)
    written = []

    def fail(value):
        raise RecordError("cannot write", got="No space left on device")

    pool = FakePool(lab.runs_folder)
    real = ledger.write
    monkeypatch.setattr(ledger, "write", lambda entry: real(entry) if len(written) < 3 else fail(entry))
    monkeypatch.setattr(
        runner,
        "_ledger_entry",
        lambda *given: written.append(1) or run_of(lab, hypothesis, "baseline", len(written), 0.0),
    )
    with pytest.raises(RecordError, match="No space"):
        run_jobs(lab, "h01", pending_arm_jobs(hypothesis), pool, ledger, quiet)
    assert len(open_lab(lab.root).history.entries_of(Run)) == 2


def test_criteria_cannot_change_once_results_are_known(lab, ledger):
    hypothesis = lab.hypotheses["h01"]
    declare_experiment(lab, hypothesis, ledger, underpowered=False)
    text = hypothesis.path.read_text().replace("below = 0.5", "below = 0.1")
    hypothesis.path.write_text(text)
    changed = open_lab(lab.root)
    with pytest.raises(LabError, match="is not what h01 was declared with"):
        declare_experiment(changed, changed.hypotheses["h01"], ledger, underpowered=False)


def test_a_baseline_cannot_change_either(lab, ledger):
    declare_experiment(lab, lab.hypotheses["h01"], ledger, underpowered=False)
    recipe = lab.root / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("steps = 2", "steps = 3"))
    changed = open_lab(lab.root)
    with pytest.raises(LabError, match="the baseline is not the one"):
        pending_arm_jobs(changed.hypotheses["h01"])(changed)


def test_what_cannot_decide_is_refused_unless_one_insists(tmp_path):
    lab = lab_in(tmp_path, {"h01": CLEAR.replace("seeds = 10", "seeds = 4")})
    ledger = Ledger(lab.ledger_folder)
    with pytest.raises(LabError, match="4 pairs prove nothing") as refused:
        declare_experiment(lab, lab.hypotheses["h01"], ledger, underpowered=False)
    assert "seeds = 7 or more" in str(refused.value)
    lab = declare_experiment(lab, lab.hypotheses["h01"], ledger, underpowered=True)
    ledger.close()
    assert lab.history.entries_of(Declaration, "h01")[0].underpowered


def test_the_error_of_a_lab_cannot_be_spent_twice(tmp_path):
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": CLEAR.replace("2e-3", "3e-3")})
    declared(lab, lab.hypotheses["h01"])
    (tmp_path / "lab.toml").write_text('name = "small"\nfamily = 1\nerror = 0.03\n')
    changed = open_lab(tmp_path)
    ledger = Ledger(changed.ledger_folder)
    with pytest.raises(LabError, match="error is spent"):
        declare_experiment(changed, changed.hypotheses["h02"], ledger, underpowered=True)
    ledger.close()


def test_prerequisites_come_first(tmp_path, values):
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": 'prerequisites = ["h01"]\n' + CLEAR.replace("2e-3", "3e-3")})
    ledger = Ledger(lab.ledger_folder)
    with pytest.raises(LabError, match="h02 comes after h01"):
        run_hypothesis(lab, lab.hypotheses["h02"], FakePool(lab.runs_folder), ledger, quiet)
    ledger.close()


CHECKED = CLEAR + '\n[check]\nrules = ["MSK003"]\nsettles = true\n'


@pytest.mark.parametrize(
    ("strength", "verdict", "trained"),
    [
        ("PROVEN", "VALIDATED", False),
        ("CLEAN", "INVALIDATED", False),
        ("NOT CHECKED", "INVALIDATED", True),
    ],
)
def test_an_exact_check_comes_first_and_what_it_settles_is_not_trained(
    tmp_path, values, strength, verdict, trained
):
    lab = lab_in(tmp_path, {"h01": CHECKED})
    ledger = Ledger(lab.ledger_folder)
    table = {"outcome": "finished", "error": "", "results": {"MSK003": [strength, "so"]}, "measures": {}}
    pool = FakePool(lab.runs_folder, {check_name(lab): table})
    after = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    assert judge(after, lab.hypotheses["h01"]).verdict == verdict
    assert (judge(after, lab.hypotheses["h01"]).by == "experiment") == trained
    assert (len(pool.started) > 1) == trained
    if not trained:  # who insists gets an effect as well
        after = run_hypothesis(after, lab.hypotheses["h01"], pool, ledger, quiet, train=True)
        assert judge(after, lab.hypotheses["h01"]).by == "experiment"
    ledger.close()
    assert len(after.history.entries_of(CheckResult)) == 1


def test_a_check_that_fails_is_an_error(tmp_path, values):
    lab = lab_in(tmp_path, {"h01": CHECKED})
    ledger = Ledger(lab.ledger_folder)
    pool = FakePool(lab.runs_folder, {check_name(lab): {"outcome": "crashed", "error": "no such model"}})
    with pytest.raises(LabError, match="the check of h01 failed"):
        run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    ledger.close()


def test_runs_that_failed_are_repeated_once(lab, ledger, values):
    hypothesis = lab.hypotheses["h01"]
    broken = keys(lab, "changed", 1)[0]
    ends = {broken: {"outcome": "crashed", "error": "loss is NaN"}}
    lab = run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder, ends), ledger, quiet)
    again = FakePool(lab.runs_folder, ends)
    lab = run_jobs(lab, "h01", retry_jobs(lab, hypothesis), again, ledger, quiet)
    assert again.started == [broken]
    assert [run.outcome for run in lab.history.entries_of(Run) if run.key == broken] == ["crashed", "crashed"]


def failed_lab(lab, ledger, *failing):
    """The lab, INCONCLUSIVE since its first runs of these arms crashed."""
    ends = {keys(lab, label, 1)[0]: {"outcome": "crashed", "error": "too few tasks"} for label in failing}
    lab = run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder, ends), ledger, quiet)
    assert judge(lab, lab.hypotheses["h01"]).verdict == "INCONCLUSIVE"
    return lab


@pytest.mark.parametrize("place", ["recipe.toml", "lab.toml", "header"])
def test_a_repaired_experiment_begins_anew_with_retry(lab, ledger, values, place):
    failed_lab(lab, ledger, "baseline")
    path = lab.hypotheses["h01"].path if place == "header" else lab.root / "recipe.toml"
    old, new = ("2e-3", "3e-3") if place == "header" else ("steps = 2", "steps = 3")
    if place == "lab.toml":
        with_changes(lab.root, "grpo.steps=3")
    else:
        path.write_text(path.read_text().replace(old, new))
    lab = open_lab(lab.root)
    verdict = judge(lab, lab.hypotheses["h01"])
    assert not verdict.settled
    assert "no arm has a result: truing lab run h01 --retry" in " ".join(verdict.notes)
    (step,) = plan(lab)
    assert (step.kind, step.runs, step.retry) == ("experiment", 20, True)
    assert any("--retry" in text for text, _ in step_lines([step]))

    pool, events = FakePool(lab.runs_folder), []
    lab = run_hypothesis(
        lab, lab.hypotheses["h01"], pool, ledger, lambda kind, facts: events.append(kind), retry=True
    )
    assert events[0] == "cost"
    assert judge(open_lab(lab.root), lab.hypotheses["h01"]).verdict == "INVALIDATED"
    assert plan(lab) == []
    assert [each.error for each in lab.history.declarations()] == [0.025], "its error is spent once"
    assert len(lab.history.entries_of(Declaration)) == 2


def test_an_arm_with_a_result_keeps_the_declared_baseline(tmp_path, values):
    two = CLEAR.replace(', arm = "changed"', "") + 'other = ["grpo.learning_rate=4e-3"]\n'
    lab = lab_in(tmp_path, {"h01": two})
    ledger = Ledger(lab.ledger_folder)
    values |= dict.fromkeys(keys(lab, "other", 10), 0.01)
    lab = declare_experiment(lab, lab.hypotheses["h01"], ledger, underpowered=False)
    for label, outcome in {"baseline": "finished", "other": "finished", "changed": "crashed"}.items():
        lab = lab.with_entry(ledger.write(run_of(lab, lab.hypotheses["h01"], label, 0, 0.0, outcome=outcome)))
    lab = with_changes(tmp_path, "grpo.steps=3")
    verdict = judge(lab, lab.hypotheses["h01"])
    assert not verdict.repaired
    assert "it keeps the declared one" in verdict.notes[-1]
    pool = FakePool(lab.runs_folder)
    lab = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet, retry=True)
    ledger.close()
    assert len(lab.history.entries_of(Declaration)) == 1
    assert pool.started[0] == keys(lab, "changed", 1)[0]


def test_without_retry_a_repaired_experiment_is_refused_with_the_remedy(lab, ledger, values):
    failed_lab(lab, ledger, "changed")
    path = lab.hypotheses["h01"].path
    path.write_text(path.read_text().replace("2e-3", "3e-3"))
    lab = open_lab(lab.root)
    with pytest.raises(LabError, match="--retry declares it anew"):
        run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder), ledger, quiet)


def test_entries_are_json_lines_that_anybody_can_read(lab, ledger, values):
    run_hypothesis(lab, lab.hypotheses["h01"], FakePool(lab.runs_folder), ledger, quiet)
    (path,) = lab.ledger_folder.glob("*.jsonl")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds[0] == "begun"
    assert set(kinds[1:]) == {"run"}


def test_a_check_for_another_hypothesis_is_reused(tmp_path, values):
    lab = lab_in(
        tmp_path, {"h01": CHECKED, "h02": CHECKED.replace("2e-3", "3e-3").replace("MSK003", "TOK001")}
    )
    table = {"results": {"MSK003": ["CLEAN", ""], "TOK001": ["PROVEN", "other ids"]}, "measures": {}}
    pool = FakePool(lab.runs_folder, {check_name(lab): {"outcome": "finished", "error": "", **table}})
    ledger = Ledger(lab.ledger_folder)
    for name in ("h01", "h02"):
        lab = run_hypothesis(lab, lab.hypotheses[name], pool, ledger, quiet)
    ledger.close()
    assert pool.started == [check_name(lab)]
    assert judge(lab, lab.hypotheses["h02"]).because == "TOK001: other ids"
    assert judge(open_lab(tmp_path), lab.hypotheses["h01"]).verdict == "INVALIDATED"


def test_criteria_about_numbers_that_are_known_are_refused(tmp_path, values):
    """A metric chosen after a run proves nothing about it; new seeds do."""
    asked = CLEAR.replace(
        'metric = "eval/reward", arm = "changed", above', 'metric = "reward/mean", arm = "changed", above'
    )
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": asked, "h03": "first_seed = 20\n" + CLEAR}, "family = 3")
    ledger, pool = Ledger(lab.ledger_folder), FakePool(lab.runs_folder)
    lab = run_hypothesis(lab, lab.hypotheses["h01"], pool, ledger, quiet)
    with pytest.raises(LabError, match="arm changed of h02 was run before") as refused:
        declare_experiment(lab, lab.hypotheses["h02"], ledger, underpowered=True)
    assert "first_seed = " in str(refused.value)
    lab = run_hypothesis(lab, lab.hypotheses["h03"], pool, ledger, quiet)
    ledger.close()
    assert judge(lab, lab.hypotheses["h03"]).verdict == "INVALIDATED"
    assert {run.seed for run in lab.history.entries_of(Run) if run.hypothesis == "h03"} <= set(range(20, 30))


def test_a_baseline_that_has_changed_is_checked_anew(tmp_path, values):
    lab = lab_in(tmp_path, {"h01": CLEAR, "h02": CHECKED.replace("2e-3", "3e-3")}, "family = 2")
    ledger = Ledger(lab.ledger_folder)
    table = {"outcome": "finished", "error": "", "results": {"MSK003": ["PROVEN", "sign"]}, "measures": {}}
    pool = FakePool(lab.runs_folder, {check_name(lab): table})
    lab = run_hypothesis(lab, lab.hypotheses["h02"], pool, ledger, quiet)
    assert judge(lab, lab.hypotheses["h02"]).notes == ()
    lab = with_changes(tmp_path, "grpo.learning_rate=2e-3")
    before = judge(lab, lab.hypotheses["h02"])
    assert before.verdict == "VALIDATED"
    assert "earlier baseline" in before.notes[-1]
    now = runner.arms_of(lab, lab.hypotheses["h02"], None)["baseline"].digest
    pool.ends = {f"check-{now[:10]}": table | {"results": {"MSK003": ["CLEAN", ""]}}}
    lab = run_hypothesis(lab, lab.hypotheses["h02"], pool, ledger, quiet)
    ledger.close()
    assert judge(lab, lab.hypotheses["h02"]).verdict == "INVALIDATED"
