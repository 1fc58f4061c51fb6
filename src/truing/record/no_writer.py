"""A writer that records nothing, for ranks other than the first."""

from collections.abc import Mapping
from typing import Any

from truing.record.writer import RunWriter
from truing.types.step_table import StepTable


class NoWriter(RunWriter):
    """Takes the place of the first rank's ``RunWriter``; its methods do nothing."""

    def __init__(self) -> None:
        """Open nothing."""

    def write_run(self, facts: Mapping[str, Any]) -> None:
        """Do nothing."""

    def write_recipe(self, text: str) -> None:
        """Do nothing."""

    def write_answers(self, answers: Mapping[str, str]) -> None:
        """Do nothing."""

    def add_answers(self, answers: Mapping[str, Any]) -> None:
        """Do nothing."""

    def rewrite(self, recipe: str, facts: Mapping[str, Any]) -> None:
        """Do nothing."""

    def write_step(self, table: StepTable) -> None:
        """Do nothing."""

    def write_event(self, kind: str, **payload: Any) -> None:
        """Do nothing."""

    def truncate_to(self, stage: str, steps: int) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
