"""The runs of an experiment: the baseline and each arm as resolved recipes, seed by seed."""

import hashlib
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import truing
from truing.config import Recipe, load_recipe
from truing.errors import LabError, RecipeError
from truing.lab.stats.pairs import finished_pairs
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Declaration, Promotion

BASELINE = "baseline"
FAULT_PREFIX = "fault="
"""``fault=NAME`` among changes plants a fault of the detection matrix; ``fault=`` removes it."""


@dataclass(frozen=True)
class Arm:
    """A side of a comparison, without its seed."""

    label: str
    changes: tuple[str, ...]  # of the baseline
    recipe: Recipe
    fault: str = ""  # planted to test the lab itself

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines its runs, except seeds, code and machine."""
        return hashlib.sha256(
            f"{self.recipe.model_dump_json(exclude_defaults=True)}\n{self.fault}".encode()
        ).hexdigest()

    def job(self, seed: int) -> "Job":
        """Return a run of the arm; seeds count from the recipe's own."""
        return Job(self, seed, self.recipe.model_copy(update={"seed": self.recipe.seed + seed}))


@dataclass(frozen=True)
class Job:
    """A run to do."""

    arm: Arm
    seed: int
    recipe: Recipe

    @property
    def key(self) -> str:
        """The name of its run directory."""
        return f"{self.arm.digest[:10]}-{setup_digest()[:6]}-s{self.seed}"

    def __str__(self) -> str:
        return f"{self.arm.label}, seed {self.seed}"


def baseline_changes(lab: Lab) -> tuple[str, ...]:
    """Return the changes of the lab's recipe: its own, then each promoted fix."""
    return (
        *lab.config.changes,
        *(change for fix in lab.history.entries_of(Promotion) for change in fix.changes),
    )


def resolve_arm(lab: Lab, label: str, base: Sequence[str], changes: Sequence[str] = ()) -> Arm:
    """Return an arm with its recipe."""
    all_changes = [*base, *changes]
    faults = [change.removeprefix(FAULT_PREFIX) for change in all_changes if change.startswith(FAULT_PREFIX)]
    path = lab.root / lab.config.recipe
    recipe = load_recipe(path, [change for change in all_changes if not change.startswith(FAULT_PREFIX)])
    return Arm(label, tuple(changes), recipe, faults[-1] if faults else "")


def arms_of(lab: Lab, hypothesis: Hypothesis, declaration: Declaration | None) -> dict[str, Arm]:
    """Return the baseline and each arm by label; as declared, if the experiment is declared."""
    base = declaration.baseline if declaration else baseline_changes(lab)
    arms = {BASELINE: resolve_arm(lab, BASELINE, base)}
    for label in hypothesis.header.arms:
        arm = _resolve_hypothesis_arm(lab, hypothesis, label, base)
        for earlier in arms.values():
            check_distinct(arm, earlier, hypothesis.id)
        arms[label] = arm
    if declaration and arms[BASELINE].digest != declaration.arms[BASELINE]:
        raise LabError(
            f"the baseline is not the one that {hypothesis.id} was declared with",
            expected=f"{lab.config.recipe} as it was, with {', '.join(declaration.baseline) or 'no changes'}",
            remedy="restore the recipe; another baseline is another hypothesis: truing lab new",
        )
    return arms


def _resolve_hypothesis_arm(lab: Lab, hypothesis: Hypothesis, label: str, base: Sequence[str]) -> Arm:
    """Return an arm of a hypothesis; an error names the arm."""
    changes = hypothesis.header.arms[label]
    try:
        return resolve_arm(lab, label, base, changes)
    except RecipeError as error:
        raise LabError(
            f"arm {label} of {hypothesis.id} is no recipe: {error.what}",
            got=error.got,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def check_distinct(arm: Arm, other: Arm, hypothesis: str) -> Arm:
    """Return the arm; raise if it equals the baseline or another arm."""
    if arm.digest == other.digest:
        same_as = "the baseline" if other.label == BASELINE else f"arm {other.label}"
        raise LabError(
            f"arm {arm.label} of {hypothesis} is {same_as}",
            got=", ".join(arm.changes),
            expected="a change of at least one key",
            remedy=f"{same_as} has these values already: truing lab status shows the promoted fixes",
        )
    if arm.recipe.seed != other.recipe.seed:
        raise LabError(
            f"arm {arm.label} of {hypothesis} changes the seed",
            expected="the seeds of the baseline: pairs share a seed",
            remedy="first_seed in the header sets other seeds for all arms",
        )
    return arm


def interaction_arms(
    lab: Lab, hypothesis: Hypothesis, other: Hypothesis, base: Sequence[str] | None = None
) -> Mapping[str, Arm]:
    """Return the 2 × 2: baseline, each first arm alone, and both; by default on the current baseline."""
    base = baseline_changes(lab) if base is None else base
    first, second = (next(iter(each.header.arms.items()), None) for each in (hypothesis, other))
    if first is None or second is None:
        raise LabError(f"{hypothesis.id} and {other.id} need an arm each to be run together")
    names = [f"{hypothesis.id}:{first[0]}", f"{other.id}:{second[0]}"]
    changes = [first[1], second[1], (*first[1], *second[1])]
    labels = [*names, " + ".join(names)]
    arms = {BASELINE: resolve_arm(lab, BASELINE, base)}
    for label, change in zip(labels, changes, strict=True):
        arms[label] = check_distinct(resolve_arm(lab, label, base, change), arms[BASELINE], hypothesis.id)
    if len({arm.digest for arm in arms.values()}) < len(arms):
        raise LabError(
            f"the arms of {hypothesis.id} and {other.id} cannot be in place at once",
            got=" · ".join(f"{label}: {' '.join(arm.changes)}" for label, arm in arms.items()),
            expected="arms that change different keys",
        )
    return arms


def missing_jobs(lab: Lab, base: Arm, arms: Sequence[Arm], seeds: range) -> list[Job]:
    """Return the runs that pairs still miss, seed by seed."""
    finished = {run.key for run in lab.history.runs().values() if run.outcome == "finished"}
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for arm in arms:
            if seed not in finished_pairs(lab.history, base.digest, arm.digest):
                jobs |= {job.key: job for job in (base.job(seed), arm.job(seed)) if job.key not in finished}
    return list(jobs.values())


@cache
def code_digest() -> str:
    """Return the SHA-256 of Truing's source: runs of two versions form no pair."""
    digest = hashlib.sha256()
    for path in sorted(Path(truing.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def machine_kind() -> str:
    """Return the kind of machine, and of torch: others round differently, so runs on both form no pair."""
    model = re.search(r"model name\s*: (.+)", _text(Path("/proc/cpuinfo")))
    graphics = [torch.cuda.get_device_name(0)] if torch.cuda.is_available() else []
    return ", ".join([model[1] if model else platform.machine(), *graphics, f"torch {torch.__version__}"])


def setup_digest() -> str:
    """Return the SHA-256 of code and machine."""
    return hashlib.sha256(f"{code_digest()}\n{machine_kind()}".encode()).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
