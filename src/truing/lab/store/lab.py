"""A lab on disk: its settings, its hypotheses, its ledger."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from truing.config import FrozenModel
from truing.errors import LabError
from truing.lab.store.hypothesis_file import Hypothesis, read_hypothesis
from truing.lab.store.ledger import Declaration, Entry, History, read_ledger

CONFIG, README, PROBLEM, LOG = "lab.toml", "README.md", "00-problem-statement.md", "01-experiments-log.md"
HYPOTHESES, RESULTS, FIXES = "hypotheses", "experimental-results", "fixes"


MAX_BEYOND_FAMILY = 20
"""Hypotheses beyond the family: the last of them needs twenty pairs more than the first."""


class LabConfig(FrozenModel):
    """What all experiments of a lab share."""

    name: str
    """What the lab is called."""
    recipe: str = "recipe.toml"
    """The baseline's recipe: a file in the lab's folder. Paths in it begin there too."""
    changes: tuple[str, ...] = ()
    """What is changed in it for the experiments: `key=value`, as on the command line."""
    error: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """The chance that the whole lab validates anything that is not so."""
    family: Annotated[int, Field(ge=1)] = 6
    """Hypotheses that share it evenly: h01 to this; each one beyond gets half of what the one before got."""
    keep_checkpoints: bool = False
    """Whether the weights of runs are kept; any run can be made again, bit for bit on the same CPU."""
    full_scale: str | None = None
    """The recipe of the run that all this is for, as one would name it to `truing train`."""


@dataclass(frozen=True)
class Lab:
    """Everything that is known; what is shown is a function of this."""

    root: Path
    config: LabConfig
    hypotheses: Mapping[str, Hypothesis]  # by id
    history: History

    def hypothesis(self, name: str) -> Hypothesis:
        """One by its id, as typed: h03, H3."""
        wanted = f"h{int(name[1:]):02d}" if name[:1] in "hH" and name[1:].isdigit() else name
        if wanted not in self.hypotheses:
            raise LabError(
                f"the lab has no hypothesis {name}",
                expected=", ".join(self.hypotheses) or "a file in hypotheses/",
                remedy="truing lab new TITLE writes one",
            )
        return self.hypotheses[wanted]

    def declaration(self, hypothesis: Hypothesis) -> Declaration | None:
        """How its experiment was declared.

        It is known by what it says: two people may have given one number twice, and one another since.
        What was declared under its number with the same title or claim was changed, and is its own still.
        """
        every = self.history.entries_of(Declaration)
        own = [each for each in every if each.hypothesis == hypothesis.id]
        same = [each for each in own if _matches(each, hypothesis)]
        moved = [each for each in every if _matches(each, hypothesis) and not self._file_matches(each)]
        changed = [
            each
            for each in own
            if each.title == hypothesis.title or each.header.get("claim") == hypothesis.header.claim
        ]
        return next(iter([*same, *moved, *changed]), None)

    def _file_matches(self, begun: Declaration) -> bool:
        """Whether the file of its number is what was declared."""
        own = self.hypotheses.get(begun.hypothesis)
        return own is not None and _matches(begun, own)

    def error_share(self, hypothesis: Hypothesis) -> float:
        """What a hypothesis may get wrong, such that all together, however many, keep the lab's error."""
        family, beyond = self.config.family, max(0, hypothesis.number - self.config.family)
        if beyond > MAX_BEYOND_FAMILY:
            raise LabError(
                f"{hypothesis.id} has no share of the lab's error left that anything could be proven with",
                got=f"number {hypothesis.number}, with family = {family}",
                expected=f"at most {family + MAX_BEYOND_FAMILY}",
                remedy="begin another lab",
            )
        return self.config.error / (family + 1) / 2**beyond

    @property
    def ledger_folder(self) -> Path:
        """Where commands add their files."""
        return self.root / RESULTS / "ledger"

    @property
    def runs_folder(self) -> Path:
        """Run directories; they stay on the machine that made them."""
        return self.root / RESULTS / "runs"

    def with_entry(self, entry: Entry) -> "Lab":
        """The lab once an entry is in its ledger."""
        return replace(self, history=self.history.with_entry(entry))


def _matches(begun: Declaration, hypothesis: Hypothesis) -> bool:
    """Whether this is what was declared, word for word."""
    return (begun.title, dict(begun.header)) == (hypothesis.title, hypothesis.header.model_dump(mode="json"))


def find_lab(start: Path) -> Path:
    """The folder, or the nearest one above it, that holds a lab."""
    if not start.exists():
        raise LabError(f"there is no folder {start}", expected="a lab, or a folder inside one")
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / CONFIG).is_file():
            return folder
    raise LabError(
        f"there is no lab in {start} or above it",
        expected=f"a folder with {CONFIG}",
        remedy="truing lab init DIR makes one; --lab DIR names another",
    )


def open_lab(start: Path) -> Lab:
    """Read a lab."""
    root = find_lab(start)
    found = [read_hypothesis(path) for path in sorted((root / HYPOTHESES).glob("*.md"))]
    by_id: dict[str, Hypothesis] = {}
    for each in found:
        if each.id in by_id:
            raise LabError(
                f"two hypotheses are {each.id}",
                got=f"{by_id[each.id].path.name}, {each.path.name}",
                remedy="give the younger one the next number that is free",
            )
        by_id[each.id] = each
    for each in found:
        if unknown := [name for name in each.header.prerequisites if name not in by_id or name == each.id]:
            raise LabError(
                f"{each.path} has a prerequisite that is no other hypothesis",
                got=", ".join(unknown),
                expected=", ".join(by_id),
            )
    _refuse_circles(by_id)
    return Lab(root, _config(root / CONFIG), by_id, read_ledger(root / RESULTS / "ledger"))


def _refuse_circles(hypotheses: Mapping[str, Hypothesis]) -> None:
    """Raise where prerequisites wait for each other."""
    done: set[str] = set()
    while free := {
        name
        for name, each in hypotheses.items()
        if name not in done and set(each.header.prerequisites) <= done
    }:
        done |= free
    if left := [name for name in hypotheses if name not in done]:
        raise LabError(
            "prerequisites wait for each other",
            got=", ".join(left),
            remedy="take one of them out of a header",
        )


def _config(path: Path) -> LabConfig:
    try:
        return LabConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path} is not TOML", got=error) from error
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, list(LabConfig.model_fields), n=1)
            told = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(LabConfig.model_fields)}"
            raise LabError(f"{path} has an unknown key {key!r}", got=problem["input"], remedy=told) from error
        raise LabError(f"{path}: {key}: {problem['msg']}", got=problem["input"]) from error
