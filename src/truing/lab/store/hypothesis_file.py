"""What a hypothesis says of itself before anything is run: the TOML block at the top of its Markdown file."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from truing.config import FrozenModel
from truing.doctor.rules import RULES
from truing.errors import LabError
from truing.lab.store.ledger import Declaration
from truing.metrics.definitions import METRICS, is_metric

EVALUATION_METRIC = re.compile(r"eval/[^/]+")
"""Metrics of the last evaluation: ``eval/reward``, or a part of the reward such as ``eval/f1``."""

HEADER_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(h(?:0[1-9]|[1-9]\d+))-[a-z0-9-]+\.md")
"""A number in one way alone: h007 and h07 would each get the error that is number 7's."""

Probability = Annotated[float, Field(gt=0, lt=1)]
PriorVerdict = Literal["VALIDATED", "PARTIALLY VALIDATED", "INVALIDATED", "INCONCLUSIVE"]


class Criterion(FrozenModel):
    """A bound that the difference to the baseline must be proven to lie beyond."""

    metric: str
    """`eval/reward`, a part of it, or a metric of docs/metrics.md, as a mean over a run's last quarter."""
    arm: str | None = None
    """Which arm; where not given, any of them confirms and all of them refute."""
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
        """The number, whichever side it bounds."""
        value = self.above if self.above is not None else self.below
        assert value is not None
        return value

    def __str__(self) -> str:
        sign = ">" if self.above is not None else "<"
        return f"{self.metric}, {self.arm or 'arm'} − baseline {sign} {self.bound:g}"


class Measure(FrozenModel):
    """A number of the check's own two updates, and where it rules a claim out."""

    metric: str
    """A metric of docs/metrics.md."""
    below: float
    """Below this, what is claimed is not there."""

    @model_validator(mode="after")
    def _known(self) -> "Measure":
        check_metric(self.metric)
        return self


class Check(FrozenModel):
    """What settles the claim without training, or narrows it: the doctor's rules on two updates."""

    rules: tuple[str, ...] = ()
    """Codes or families, as `truing rules` lists them. PROVEN validates the claim."""
    measures: tuple[Measure, ...] = ()
    """Numbers that rule the claim out where all of them, and all rules, are clean."""
    settles: bool = False
    """Whether clean rules and measures refute the claim; else what is left of it is for the arms to say."""

    @model_validator(mode="after")
    def _known(self) -> "Check":
        """Refuse rules that nobody knows, and a check of nothing."""
        unknown = [rule for rule in self.rules if not any(code.startswith(rule) for code in RULES)]
        if unknown:
            raise ValueError(f"truing rules lists no {', '.join(unknown)}")
        if not self.rules and not self.measures:
            raise ValueError("a check asks for rules, or for measures")
        return self


class Prior(FrozenModel):
    """What was said of it before this lab; told, not measured here."""

    verdict: PriorVerdict
    """The verdict."""
    note: str
    """What was seen."""
    source: str
    """Who saw it, and how."""


class Header(FrozenModel):
    """Claim, cost and criteria; written before running, and held to."""

    claim: str
    """One sentence that can turn out wrong."""
    why: str
    """Why it may be so."""
    priority: Literal["high", "medium", "low"]
    """What the team makes of it."""
    probability: Probability
    """How likely the claim is; `truing lab plan` weighs it by information and minutes."""
    cost: str
    """What it takes, in words: memory, data, hours."""
    prerequisites: tuple[str, ...] = ()
    """Hypotheses to settle first, such as `h01`."""
    metric: str = "eval/reward"
    """What the effect is told in."""
    within: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict[str, float])
    """By metric, how far from 0 any pair's difference can lie; of rewards as far as their weights allow."""
    smallest_effect: Annotated[float, Field(gt=0)]
    """The smallest difference that matters, in the metric's unit; the experiment must be able to see it."""
    seeds: Annotated[int, Field(ge=2, le=200)] = 12
    """Pairs of runs, at most; a clear effect and a clear null stop earlier."""
    first_seed: Annotated[int, Field(ge=0)] = 0
    """The first of them, counted from the recipe's; others than those that an arm was seen with."""
    confirm: tuple[Criterion, ...] = ()
    """All of these, and the claim is validated; some, and it is in part."""
    refute: tuple[Criterion, ...] = ()
    """Any of these, and it is invalidated."""
    arms: Mapping[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """What each arm changes in the recipe of the baseline: `key=value`, as on the command line."""
    check: Check | None = None
    """The exact check that comes first, where there is one."""
    prior: Prior | None = None
    """What was known before."""

    @property
    def expects_increase(self) -> bool:
        """Whether the claim is that its metric gets larger."""
        own = [each for each in self.confirm if each.metric == self.metric]
        return not own or own[0].above is not None

    @property
    def seed_range(self) -> range:
        """The seeds of its pairs, in the order in which they count."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @model_validator(mode="after")
    def _decides(self) -> "Header":
        """Refuse what cannot come to a verdict."""
        for metric in (self.metric, *self.within):
            check_metric(metric)
        most = self.within.get(self.metric)
        if most is not None and most <= self.smallest_effect:
            raise ValueError(f"no pair differs by more than {most:g}, so smallest_effect is never seen")
        if not self.arms and not (self.check and self.check.settles):
            raise ValueError("without [arms] nothing can be compared: give one, or a [check] that settles it")
        if self.arms and not (self.confirm and self.refute):
            raise ValueError(
                "say what would confirm and what would refute it before anything is run: confirm, refute"
            )
        if "baseline" in self.arms or "" in self.arms:
            raise ValueError("an arm needs a name of its own, which is not baseline")
        for name, changes in self.arms.items():
            if not changes:
                raise ValueError(f'arm {name} changes nothing: give it overrides such as "kl.coef=0"')
        for criterion in (*self.confirm, *self.refute):
            if criterion.arm is not None and criterion.arm not in self.arms:
                there = ", ".join(self.arms) or "none"
                raise ValueError(f"a criterion is about arm {criterion.arm!r}, and there is {there}")
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
    """A hypothesis from its file."""
    named = FILE_NAME.fullmatch(path.name)
    if not named:
        raise LabError(
            f"{path} is no hypothesis", got=path.name, expected="a name such as h07-short-prompts.md"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabError(f"{path} is no text", got=error, expected="UTF-8") from error
    block = HEADER_BLOCK.search(text)
    above = text[: block.start()] if block else text  # a comment of the header is no title
    title = re.search(r"^# (.+)$", above, re.MULTILINE)
    if not block or not title:
        raise LabError(
            f"{path} lacks its {'header' if title else 'title'}",
            expected="a line `# Title`, and below it a block ```toml … ``` with claim, criteria and arms",
            remedy="truing lab new TITLE writes one to fill in",
        )
    first_line = text[: block.start(1)].count("\n") + 1
    return Hypothesis(named[1], _without_number(title[1]), path, _header(path, block[1], first_line))


def declared_header(declaration: Declaration) -> Header:
    """The header that an experiment began with."""
    try:
        return Header.model_validate(declaration.header)
    except ValidationError as error:
        raise LabError(
            f"{declaration.hypothesis} was declared in a way that is not understood",
            got=error.errors()[0]["msg"],
            remedy="another version of truing began it: take that one",
        ) from error


def _without_number(title: str) -> str:
    """The title less its number: `H01: Advantage scaling` is `Advantage scaling`."""
    return re.sub(r"^[hH]\d+\W+", "", title).strip()


def _header(path: Path, text: str, first_line: int) -> Header:
    """The header, or what is wrong with it, and where."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        place = f" (line {int(line[1]) + first_line - 1} of the file)" if line else ""
        raise LabError(f"the header of {path} is not TOML", got=f"{error}{place}") from error
    try:
        return Header.model_validate(table)
    except ValidationError as error:
        raise _header_error(path, error, table) from error


def _header_error(path: Path, error: ValidationError, table: Mapping[str, Any]) -> LabError:
    """One problem of a header: an unknown key first, for it may be a misspelt one that is missing."""
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(map(str, problem["loc"]))
    told = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return LabError(f"{path} lacks {key!r}", remedy="docs/lab.md tells what each key of a header means")
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, list(Header.model_fields), n=1)
        return LabError(
            f"{path} has an unknown key {key!r}",
            got=problem["input"],
            remedy=f"did you mean {near[0]}?" if near else "docs/lab.md lists the keys of a header",
        )
    if problem["type"] == "value_error":
        return LabError(f"{path}: {told}", got=(key and problem["input"]) or None)
    return LabError(f"{path}: {key} has a value that cannot be", got=problem["input"], expected=told)


def check_metric(name: str) -> None:
    """Raise ValueError for a metric that no run has."""
    if EVALUATION_METRIC.fullmatch(name) or is_metric(name):
        return
    near = difflib.get_close_matches(name, ["eval/reward", *(metric.name for metric in METRICS)], n=1)
    hint = f": did you mean {near[0]}?" if near else ": eval/reward, or a name of docs/metrics.md"
    raise ValueError(f"no run has the metric {name!r}{hint}")
