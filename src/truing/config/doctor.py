"""What the doctor does while a run goes on."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from truing.config.sections import FrozenModel
from truing.errors import RecipeError


class DoctorConfig(FrozenModel):
    """Rules that judge each update as it is made (docs/doctor.md)."""

    stop: bool = True
    """Whether a run ends at an update of which a rule proves that it is wrong; it is told in any case."""
    budget: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Share of a stage's computation, in tokens, for extra passes over some rows: 1 is all updates."""
    suppress: dict[str, str] = Field(default_factory=dict)
    """Rules whose findings are meant, each with the reason: `REF001 = "synced by hand"`."""


def rule_codes() -> list[str]:
    """Codes of all rules, by their files: to import them takes torch, which no recipe should wait for."""
    folder = Path(__file__).parents[1] / "doctor" / "rules"
    return sorted(path.stem.upper() for path in folder.glob("[a-z]*.py"))


def check_suppressed(suppress: Mapping[str, str]) -> None:
    """Raise where what is suppressed is no rule, or nobody says why."""
    codes = rule_codes()
    for code, reason in suppress.items():
        if code not in codes:
            family = [each for each in codes if code and each.startswith(code.upper())]
            near = family or difflib.get_close_matches(code.upper(), codes, n=1)
            raise RecipeError(
                f"doctor.suppress names {code!r}, and there is no such rule",
                got=f"{code} = {reason!r}",
                expected="the code of one rule a line",
                remedy=f"did you mean {', '.join(near)}?" if near else "`truing rules` lists all",
            )
        if not reason.strip():
            raise RecipeError(
                f"doctor.suppress does not say why {code} is meant",
                got=f"{code} = {reason!r}",
                expected="a reason, which the report shows",
                remedy=f'{code} = "synced by hand", or take the line out',
            )
