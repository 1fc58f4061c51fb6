"""Labs for tests: a folder with a small baseline, hypotheses, and runs that nobody trained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from truing.lab.run.design import BASELINE, arms_of, code_digest, machine_kind
from truing.lab.run.runner import declare_experiment
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab, open_lab
from truing.lab.store.ledger import Declaration, Ledger, Run

RECIPE = """
name = "small"
stages = ["grpo"]
[model]
name = "tiny"
device = "cpu"
threads = 1
[env]
name = "arithmetic"
kinds = ["max"]
train = 24
eval = 8
[sampling]
max_new_tokens = 4
[grpo]
steps = 2
prompts_per_step = 4
group_size = 4
learning_rate = 1e-3
[eval]
tasks = 4
base = false
"""

HEADER = """
claim = "the arm helps"
why = "somebody said so"
priority = "medium"
smallest_effect = 0.5
seeds = 10
confirm = [{ metric = "eval/reward", arm = "changed", above = 0.0 }]
refute = [{ metric = "eval/reward", arm = "changed", below = 0.5 }]

[arms]
changed = ["grpo.learning_rate=2e-3"]
"""
"""A hypothesis whose pairs decide by their signs; tests change what they are about."""

CLEAR = HEADER.replace("smallest_effect = 0.5", "smallest_effect = 0.75")
"""One that decides where pairs are known to lie within ±1: ten of them show no smaller mean."""


def lab_in(folder: Path, headers: Mapping[str, str] = {"h01": HEADER}, settings: str = "family = 1") -> Lab:
    """A lab with a hypothesis for each header."""
    (folder / "hypotheses").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "lab.toml").write_text(f'name = "small"\n{settings}\n')
    for name, header in headers.items():
        (folder / "hypotheses" / f"{name}-some.md").write_text(
            f"# {name.upper()}: Some\n\n```toml\n{header}\n```\n"
        )
    return open_lab(folder)


class EarlierLedger(Ledger):
    """A ledger of a version that bet on signs, and said nothing of how far pairs can lie from 0."""

    def write(self, entry):
        """Add an entry, less what was not known then."""
        old = replace(entry, within={}, underpowered=False) if isinstance(entry, Declaration) else entry
        return super().write(old)


def declared(lab: Lab, hypothesis: Hypothesis, kind: type[Ledger] = EarlierLedger) -> Lab:
    """The lab once an experiment is declared."""
    ledger = kind(lab.ledger_folder)
    lab = declare_experiment(lab, hypothesis, ledger, underpowered=True)
    ledger.close()
    return lab


def run_of(lab: Lab, hypothesis: Hypothesis, label: str, seed: int, value: float, **facts: object) -> Run:
    """A finished run of an arm that came to ``value``, on twelve tasks."""
    begun = next(iter(lab.history.entries_of(Declaration, hypothesis.id)), None)
    arm = arms_of(lab, hypothesis, begun)[label]
    given = {
        "metrics": {"eval/reward": value},
        "tasks": {f"task-{i}": value for i in range(12)},
        "bounds": (min(0.0, value), max(1.0, value)),
        "curve": [0.0, value],
        "seconds": 30.0,
        **facts,
    }
    outcome = given.pop("outcome", "finished")
    return Run(
        arm.job(seed).key,
        arm.digest,
        code_digest(),
        machine_kind(),
        hypothesis.id,
        label,
        seed,
        outcome,
        **given,
    )  # type: ignore[arg-type]


def with_runs(lab: Lab, hypothesis: Hypothesis, values: Mapping[str, Sequence[float]]) -> Lab:
    """The lab with runs of each arm by seed, the baseline's 0 where it has none."""
    most = max(map(len, values.values()))
    for label, found in ({BASELINE: [0.0] * most} | dict(values)).items():
        for seed, value in enumerate(found):
            lab = lab.with_entry(run_of(lab, hypothesis, label, seed, value))
    return lab
