"""The doctor during a run."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from truing.config.sections import FrozenModel
from truing.errors import RecipeError


class DoctorConfig(FrozenModel):
    """Rules that judge each step of a run (docs/doctor.md)."""

    stop: bool = True
    """Whether a run ends at a step that a rule proves wrong. The finding is reported in any case."""
    budget: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Share of a stage's computation, in tokens, for audits (more passes over some samples); 1 audits all."""
    shaping: tuple[str, ...] = ()
    """Parts of the reward that only shape it, such as a bonus for short answers: checks judge the others."""
    suppress: dict[str, str] = Field(default_factory=dict)
    """Rules whose findings are intended, each with the reason: `REF001 = "synced by hand"`."""


def rule_codes() -> list[str]:
    """Return the codes of all rules, from file names: importing the rules would import torch."""
    folder = Path(__file__).parents[1] / "doctor" / "rules"
    return sorted(path.stem.upper() for path in folder.glob("[a-z]*.py"))


def suppressed_problems(suppress: Mapping[str, str]) -> Iterator[RecipeError]:
    """Yield an error for each suppressed rule that does not exist, or has no reason."""
    codes = rule_codes()
    for code, reason in suppress.items():
        if code not in codes:
            family = [each for each in codes if code and each.startswith(code.upper())]
            similar = family or difflib.get_close_matches(code.upper(), codes, n=1)
            yield RecipeError(
                f"doctor.suppress names {code!r}, and there is no such rule",
                got=f"{code} = {reason!r}",
                expected="the code of one rule a line",
                remedy=f"did you mean {', '.join(similar)}?" if similar else "`truing rules` lists all",
            )
        elif not reason.strip():
            yield RecipeError(
                f"doctor.suppress gives no reason for {code}",
                got=f"{code} = {reason!r}",
                expected="a reason, which the report shows",
                remedy=f'{code} = "synced by hand", or remove the line',
            )
