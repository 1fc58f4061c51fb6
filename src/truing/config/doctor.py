"""What the doctor does while a run goes on."""

from typing import Annotated

from pydantic import Field

from truing.config.parts import Part


class DoctorConfig(Part):
    """Rules that judge each update as it is made (docs/doctor.md)."""

    stop: bool = True
    """Whether a run ends at an update of which a rule proves that it is wrong; it is told in any case."""
    budget: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Share of a stage's time for extra passes over some rows; the first update always has one, at 1 all."""
    suppress: dict[str, str] = Field(default_factory=dict)
    """Rules whose findings are meant, each with the reason: `REF001 = "synced by hand"`."""
