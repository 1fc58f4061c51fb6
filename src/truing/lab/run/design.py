"""The runs of an experiment: the baseline and each arm as resolved recipes, seed by seed."""

import hashlib
import platform
import re
from collections.abc import Sequence
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
from truing.lab.store.ledger import Declaration

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


def resolve_arm(lab: Lab, label: str, base: Sequence[str], changes: Sequence[str] = ()) -> Arm:
    """Return an arm with its recipe."""
    all_changes = [*base, *changes]
    faults = [change.removeprefix(FAULT_PREFIX) for change in all_changes if change.startswith(FAULT_PREFIX)]
    path = lab.root / lab.config.recipe
    recipe = load_recipe(path, [change for change in all_changes if not change.startswith(FAULT_PREFIX)])
    return Arm(label, tuple(changes), recipe, faults[-1] if faults else "")


def baseline_of(lab: Lab) -> Arm:
    """Return the baseline of experiments that are not declared yet."""
    return resolve_arm(lab, BASELINE, lab.config.changes)


def baseline_digest(lab: Lab, declaration: Declaration | None) -> str:
    """Return the digest of the declared baseline; before a declaration, that of the lab's."""
    return declaration.arms[BASELINE] if declaration else baseline_of(lab).digest


def arms_of(lab: Lab, hypothesis: Hypothesis, declaration: Declaration | None) -> dict[str, Arm]:
    """Return the baseline and each arm by label; as declared, if the experiment is declared."""
    base = declaration.baseline if declaration else lab.config.changes
    arms = {BASELINE: resolve_arm(lab, BASELINE, base)}
    for label in hypothesis.header.arms:
        arm = _resolve_hypothesis_arm(lab, hypothesis, label, base)
        for earlier in arms.values():
            _check_distinct(arm, earlier, hypothesis.id)
        arms[label] = arm
    if declaration and arms[BASELINE].digest != declaration.arms[BASELINE]:
        raise LabError(
            f"the baseline is not the one that {hypothesis.id} was declared with",
            expected=f"{lab.config.recipe} as it was, with {', '.join(declaration.baseline) or 'no changes'}",
            remedy="restore the recipe; another baseline is another hypothesis: truing lab new. If its"
            " runs failed before an arm had a result, --retry declares it anew",
        )
    return arms


def _resolve_hypothesis_arm(lab: Lab, hypothesis: Hypothesis, label: str, base: Sequence[str]) -> Arm:
    """Return an arm of a hypothesis; an error names the arm."""
    changes = hypothesis.header.arms[label]
    try:
        return resolve_arm(lab, label, base, changes)
    except RecipeError as error:
        raise LabError(
            f"arm {label} of {hypothesis.id} is not a recipe: {error.what}",
            got=error.got,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _check_distinct(arm: Arm, other: Arm, hypothesis: str) -> None:
    """Raise if an arm equals the baseline or another arm, or has other seeds."""
    if arm.digest == other.digest:
        same_as = "the baseline" if other.label == BASELINE else f"arm {other.label}"
        raise LabError(
            f"arm {arm.label} of {hypothesis} is {same_as}",
            got=", ".join(arm.changes),
            expected="a change of at least one key",
            remedy="another change: recipe.toml, and changes in lab.toml, make the baseline",
        )
    if arm.recipe.seed != other.recipe.seed:
        raise LabError(
            f"arm {arm.label} of {hypothesis} changes the seed",
            expected="the seeds of the baseline: pairs share a seed",
            remedy="first_seed in the header sets other seeds for all arms",
        )


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
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    model = re.search(r"model name\s*: (.+)", text)
    graphics = [torch.cuda.get_device_name(0)] if torch.cuda.is_available() else []
    return ", ".join([model[1] if model else platform.machine(), *graphics, f"torch {torch.__version__}"])


def setup_digest() -> str:
    """Return the SHA-256 of code and machine."""
    return hashlib.sha256(f"{code_digest()}\n{machine_kind()}".encode()).hexdigest()
