"""A hypothesis file: Markdown with a TOML header that declares claim, criteria and arms."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from truing.config import FrozenModel
from truing.doctor.rules import RULES
from truing.errors import LabError
from truing.lab.store.ledger import Declaration
from truing.metrics.definitions import METRICS, is_metric
from truing.utils.format import did_you_mean
from truing.utils.parse import parse_toml
from truing.utils.regular_files import read_regular_text

EVALUATION_METRIC = re.compile(r"eval/[^/]+")
"""Metrics of the last evaluation: ``eval/reward``, or a part of the reward such as ``eval/f1``."""

HEADER_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(h(?:0[1-9]|[1-9]\d+))-[a-z0-9-]+\.md")
"""One spelling per number: h007 and h07 would each get the error share of number 7."""

PriorVerdict = Literal["VALIDATED", "PARTIALLY VALIDATED", "INVALIDATED", "INCONCLUSIVE"]


class Criterion(FrozenModel):
    """A bound that the difference to the baseline must be proven to lie beyond."""

    metric: str
    """`eval/reward`, a part of it, or a metric of docs/metrics.md, as a mean over a run's last quarter."""
    arm: str | None = None
    """The arm; without it, any arm confirms and all arms refute."""
    above: float | None = None
    """Arm − baseline is above this."""
    below: float | None = None
    """Arm − baseline is below this."""

    @model_validator(mode="after")
    def _one_bound(self) -> "Criterion":
        if (self.above is None) == (self.below is None):
            raise ValueError("a criterion has one bound: above = …, or below = …")
        check_metric(self.metric)
        return self

    @property
    def bound(self) -> float:
        """The bound, of either side."""
        value = self.above if self.above is not None else self.below
        assert value is not None
        return value

    def __str__(self) -> str:
        sign = ">" if self.above is not None else "<"
        return f"{self.metric}, {self.arm or 'arm'} − baseline {sign} {self.bound:g}"


class Measure(FrozenModel):
    """A metric of the check's two steps, and the bound below which it rules a claim out."""

    metric: str
    """A metric of docs/metrics.md."""
    below: float
    """Below this, the claim is ruled out."""

    @model_validator(mode="after")
    def _known(self) -> "Measure":
        check_metric(self.metric)
        return self


class Check(FrozenModel):
    """An exact check, which settles or narrows the claim without training: rules on two steps."""

    rules: tuple[str, ...] = ()
    """Codes or families, as `truing rules` lists them. PROVEN validates the claim."""
    measures: tuple[Measure, ...] = ()
    """Metrics that rule the claim out if all of them, and all rules, are clean."""
    settles: bool = False
    """Whether clean rules and measures refute the claim; otherwise the arms decide."""

    @model_validator(mode="after")
    def _known(self) -> "Check":
        """Raise for unknown rules, and for a check of nothing."""
        unknown = [rule for rule in self.rules if not any(code.startswith(rule) for code in RULES)]
        if unknown:
            raise ValueError(f"truing rules lists no {', '.join(unknown)}")
        if not self.rules and not self.measures:
            raise ValueError("a check asks for rules, or for measures")
        return self


class Prior(FrozenModel):
    """A verdict from before this lab: reported elsewhere, not measured here."""

    verdict: PriorVerdict
    """The verdict."""
    note: str
    """The observation."""
    source: str
    """Who observed it, and how."""


class Header(FrozenModel):
    """Claim and criteria, declared before the first run."""

    claim: str
    """One sentence that can turn out wrong."""
    why: str
    """Why it may be so."""
    priority: Literal["high", "medium", "low"]
    """The team's priority."""
    prerequisites: tuple[str, ...] = ()
    """Hypotheses to settle first, such as `h01`."""
    metric: str = "eval/reward"
    """The metric of the effect."""
    within: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict[str, float])
    """By metric, the bound on the size of a pair's difference; by default for rewards, what weights allow."""
    smallest_effect: Annotated[float, Field(gt=0)]
    """The smallest difference of interest, in the metric's unit; the experiment must be able to detect it."""
    seeds: Annotated[int, Field(ge=2, le=200)] = 12
    """Pairs of runs at most; a clear effect and a clear null stop earlier."""
    first_seed: Annotated[int, Field(ge=0)] = 0
    """The first seed, counted from the recipe's; take new ones if results of an arm are known."""
    confirm: tuple[Criterion, ...] = ()
    """If all are met, the claim is validated; if some are, partially."""
    refute: tuple[Criterion, ...] = ()
    """If any is met, the claim is invalidated."""
    arms: Mapping[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """The changes of each arm to the baseline's recipe: `key=value`, as on the command line."""
    check: Check | None = None
    """The exact check, which comes first."""
    prior: Prior | None = None
    """The verdict before this lab."""

    @property
    def expects_increase(self) -> bool:
        """Whether the claim is that its metric increases."""
        criteria = [each for each in self.confirm if each.metric == self.metric]
        return not criteria or criteria[0].above is not None

    @property
    def seed_range(self) -> range:
        """The seeds of its pairs, in order."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @model_validator(mode="after")
    def _decides(self) -> "Header":
        """Raise for a header that cannot lead to a verdict."""
        for metric in (self.metric, *self.within):
            check_metric(metric)
        bound = self.within.get(self.metric)
        if bound is not None and bound <= self.smallest_effect:
            raise ValueError(f"no pair differs by more than {bound:g}, so smallest_effect is never detected")
        if not self.arms and not (self.check and self.check.settles):
            raise ValueError("without [arms] nothing can be compared: give one, or a [check] that settles it")
        if self.arms and not (self.confirm and self.refute):
            raise ValueError(
                "state what would confirm and what would refute it before anything is run: confirm, refute"
            )
        if "baseline" in self.arms or "" in self.arms:
            raise ValueError("an arm needs a name of its own, which is not baseline")
        for name, changes in self.arms.items():
            if not changes:
                raise ValueError(f'arm {name} changes nothing: give it overrides such as "kl.coef=0"')
        for criterion in (*self.confirm, *self.refute):
            if criterion.arm is not None and criterion.arm not in self.arms:
                arms = ", ".join(self.arms) or "none"
                raise ValueError(f"a criterion is about arm {criterion.arm!r}, and there is {arms}")
        return self


@dataclass(frozen=True)
class Hypothesis:
    """A file under hypotheses/."""

    id: str  # h01
    title: str
    path: Path
    header: Header

    @property
    def number(self) -> int:
        """1 for h01."""
        return int(self.id[1:])


def read_hypothesis(path: Path) -> Hypothesis:
    """Return a hypothesis from its file."""
    match = FILE_NAME.fullmatch(path.name)
    if not match:
        raise LabError(
            f"{path} is not a hypothesis", got=path.name, expected="a name such as h07-short-prompts.md"
        )
    try:
        text = read_regular_text(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path} cannot be read as text", got=error, expected="UTF-8") from error
    block = HEADER_BLOCK.search(text)
    above = text[: block.start()] if block else text  # a comment in the header is not a title
    title = re.search(r"^# (.+)$", above, re.MULTILINE)
    if not block or not title:
        raise LabError(
            f"{path} lacks its {'header' if title else 'title'}",
            expected="a line `# Title`, and below it a block ```toml … ``` with claim, criteria and arms",
            remedy="truing lab new TITLE writes one to fill in",
        )
    first_line = text[: block.start(1)].count("\n") + 1
    bare_title = re.sub(r"^[hH]\d+\W+", "", title[1]).strip()  # less its number, as in `H01: Short prompts`
    return Hypothesis(match[1], bare_title, path, _header(path, block[1], first_line))


def declared_header(declaration: Declaration) -> Header:
    """Return the declared header of an experiment."""
    try:
        return Header.model_validate(declaration.header)
    except ValidationError as error:
        raise LabError(
            f"{declaration.hypothesis} has a declaration that this version cannot read",
            got=error.errors()[0]["msg"],
            remedy="use the version of truing that declared it",
        ) from error


def _header(path: Path, text: str, first_line: int) -> Header:
    """Return the header; raise with the place of an error."""
    try:
        table = parse_toml(text)
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        location = f" (line {int(line[1]) + first_line - 1} of the file)" if line else ""
        raise LabError(f"the header of {path} is not TOML", got=f"{error}{location}") from error
    try:
        return Header.model_validate(table)
    except ValidationError as error:
        raise model_error(path, error, Header) from error


def model_error(path: Path, error: ValidationError, model: type[FrozenModel]) -> LabError:
    """Return one error of a file's table: an unknown key first, as it may be a misspelled required one."""
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return LabError(f"{path} lacks {key!r}", remedy="`truing explain lab` explains each key")
    if problem["type"] == "extra_forbidden":
        remedy = did_you_mean(key, model.model_fields) or "`truing explain lab` lists the keys"
        return LabError(f"{path} has an unknown key {key!r}", got=problem["input"], remedy=remedy)
    if problem["type"] == "value_error":
        return LabError(f"{path}: {message}", got=(key and problem["input"]) or None)
    return LabError(f"{path}: {key} has an invalid value", got=problem["input"], expected=message)


def check_metric(name: str) -> None:
    """Raise ValueError for an unknown metric."""
    if EVALUATION_METRIC.fullmatch(name) or is_metric(name):
        return
    similar = did_you_mean(name, ["eval/reward", *(metric.name for metric in METRICS)])
    hint = similar or "eval/reward, or one of `truing explain metrics`"
    raise ValueError(f"no run has the metric {name!r}: {hint}")
