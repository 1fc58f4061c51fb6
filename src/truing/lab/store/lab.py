"""A lab on disk: its settings, hypotheses and ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from truing.config import FrozenModel
from truing.errors import LabError
from truing.lab.store.hypothesis_file import Hypothesis, model_error, read_hypothesis
from truing.lab.store.ledger import Declaration, Entry, History, read_ledger
from truing.utils.parse import parse_toml
from truing.utils.regular_files import read_regular_text

CONFIG, README, PROBLEM, LOG = "lab.toml", "README.md", "00-problem-statement.md", "01-experiments-log.md"
HYPOTHESES, RESULTS = "hypotheses", "experimental-results"

MAX_BEYOND_FAMILY = 20
"""Most hypotheses beyond the family: the last needs twenty pairs more than the first."""


class LabConfig(FrozenModel):
    """The settings that all experiments of a lab share."""

    name: str
    """The name of the lab."""
    recipe: str = "recipe.toml"
    """The baseline's recipe: a file in the lab's folder. Its paths are relative to that folder."""
    changes: tuple[str, ...] = ()
    """Changes to it for the experiments, such as a validated arm's: `key=value`, as on the command line."""
    error: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """The probability that the whole lab validates anything false."""
    family: Annotated[int, Field(ge=1)] = 6
    """Hypotheses that share the error evenly, from h01; each one beyond gets half of the previous share."""
    keep_checkpoints: bool = False
    """Whether to keep the weights of runs; a run can be repeated bit for bit on the same CPU."""


@dataclass(frozen=True)
class Lab:
    """The state of a lab; all output derives from it."""

    root: Path
    config: LabConfig
    hypotheses: Mapping[str, Hypothesis]  # by id
    history: History

    def hypothesis(self, name: str) -> Hypothesis:
        """Return a hypothesis by its id, such as h03 or H3."""
        id_ = f"h{int(name[1:]):02d}" if name[:1] in "hH" and name[1:].isdigit() else name
        if id_ not in self.hypotheses:
            raise LabError(
                f"the lab has no hypothesis {name}",
                expected=", ".join(self.hypotheses) or "a file in hypotheses/",
                remedy="truing lab new TITLE writes one",
            )
        return self.hypotheses[id_]

    def declaration(self, hypothesis: Hypothesis) -> Declaration | None:
        """Return the declaration of its experiment; None if there is none.

        A declaration is matched by content: two people may have used one number twice, or renumbered a file.
        A declaration with its number and the same title or claim is its own, although the file has changed.
        """
        declarations = self.history.declarations()
        same_number = [each for each in declarations if each.hypothesis == hypothesis.id]
        unchanged = [each for each in same_number if _matches(each, hypothesis)]
        moved = [each for each in declarations if _matches(each, hypothesis) and not self._file_matches(each)]
        changed = [
            each
            for each in same_number
            if each.title == hypothesis.title or each.header.get("claim") == hypothesis.header.claim
        ]
        return next(iter([*unchanged, *moved, *changed]), None)

    def _file_matches(self, declaration: Declaration) -> bool:
        """Whether the file of its number matches the declaration."""
        hypothesis = self.hypotheses.get(declaration.hypothesis)
        return hypothesis is not None and _matches(declaration, hypothesis)

    def error_share(self, hypothesis: Hypothesis) -> float:
        """Return the error share of a hypothesis; all shares together stay within the lab's error."""
        family, beyond = self.config.family, max(0, hypothesis.number - self.config.family)
        if beyond > MAX_BEYOND_FAMILY:
            raise LabError(
                f"{hypothesis.id} has too small a share of the lab's error to prove anything",
                got=f"number {hypothesis.number}, with family = {family}",
                expected=f"at most {family + MAX_BEYOND_FAMILY}",
                remedy="create another lab",
            )
        return self.config.error / (family + 1) / 2**beyond

    @property
    def ledger_folder(self) -> Path:
        """The folder to which commands add their files."""
        return self.root / RESULTS / "ledger"

    @property
    def runs_folder(self) -> Path:
        """The folder of run directories, which stay on their machine."""
        return self.root / RESULTS / "runs"

    def with_entry(self, entry: Entry) -> "Lab":
        """Return the lab with one more entry in its ledger."""
        return replace(self, history=self.history.with_entry(entry))


def _matches(declaration: Declaration, hypothesis: Hypothesis) -> bool:
    """Whether title and header equal the declaration."""
    return (declaration.title, dict(declaration.header)) == (
        hypothesis.title,
        hypothesis.header.model_dump(mode="json"),
    )


def find_lab(start: Path) -> Path:
    """Return the nearest folder with a lab: this one or one above it."""
    if not start.exists():
        raise LabError(f"there is no folder {start}", expected="a lab, or a folder inside one")
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / CONFIG).is_file():
            return folder
    raise LabError(
        f"there is no lab in {start} or above it",
        expected=f"a folder with {CONFIG}",
        remedy="truing lab init DIR creates one; --lab DIR names another",
    )


def open_lab(start: Path) -> Lab:
    """Read a lab."""
    root = find_lab(start)
    hypotheses = [read_hypothesis(path) for path in sorted((root / HYPOTHESES).glob("*.md"))]
    by_id: dict[str, Hypothesis] = {}
    for hypothesis in hypotheses:
        if hypothesis.id in by_id:
            raise LabError(
                f"two hypotheses are {hypothesis.id}",
                got=f"{by_id[hypothesis.id].path.name}, {hypothesis.path.name}",
                remedy="give the newer one the next free number",
            )
        by_id[hypothesis.id] = hypothesis
    for hypothesis in hypotheses:
        if unknown := [
            name for name in hypothesis.header.prerequisites if name not in by_id or name == hypothesis.id
        ]:
            raise LabError(
                f"{hypothesis.path} has a prerequisite that is no other hypothesis",
                got=", ".join(unknown),
                expected=", ".join(by_id),
            )
    _check_cycles(by_id)
    return Lab(root, _config(root / CONFIG), by_id, read_ledger(root / RESULTS / "ledger"))


def _check_cycles(hypotheses: Mapping[str, Hypothesis]) -> None:
    """Raise if prerequisites form a cycle."""
    done: set[str] = set()
    while ready := {
        name
        for name, each in hypotheses.items()
        if name not in done and set(each.header.prerequisites) <= done
    }:
        done |= ready
    if waiting := [name for name in hypotheses if name not in done]:
        raise LabError(
            "prerequisites wait for each other",
            got=", ".join(waiting),
            remedy="remove one of them from a header",
        )


def _config(path: Path) -> LabConfig:
    try:
        table = parse_toml(read_regular_text(path, "utf-8-sig"))
    except OSError as error:
        raise LabError(f"{path} cannot be read", got=error) from error
    except ValueError as error:
        raise LabError(f"{path} is not TOML", got=error) from error
    try:
        return LabConfig.model_validate(table)
    except ValidationError as error:
        raise model_error(path, error, LabConfig) from error
