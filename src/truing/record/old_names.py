"""Names that earlier versions wrote into run directories, and today's: every reader takes both."""

from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Value = TypeVar("Value")

METRICS = {"entropy/contract": "entropy/mean", "entropy/drawn": "entropy/sampled"}
PHASES = {"world": "environment"}
RUN_KEYS = {"contract": "sampling_params"}
FACTS = {
    "arrival": "row_gradients",
    "handed": "backward_sums",
    "unheard": "missing_gradient",
    "uses": "sample_usage",
    "follow": "reference_sync",
    "looks": "audit_cost",
}
COLUMNS = {"contract": "sampling_params", "pull": "token_gradient"}
ENDED_BY = {"world": "environment"}

NUMBERS = METRICS | {f"seconds/{old}": f"seconds/{new}" for old, new in PHASES.items()}
"""Columns of ``UpdateColumns``."""


def renamed(table: Mapping[str, Value], names: Mapping[str, str]) -> dict[str, Value]:
    """Return a table with today's names."""
    return {names.get(name, name): value for name, value in table.items()}


def renamed_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an update with today's names, also within a fact."""
    return {
        name: renamed(fact, FACTS) if isinstance(fact, dict) else fact
        for name, fact in renamed(facts, FACTS).items()
    }


def renamed_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with today's names of columns."""
    return pa.schema([field.with_name(COLUMNS.get(field.name, field.name)) for field in schema])


def stored_names(schema: pa.Schema, names: tuple[str, ...]) -> list[str]:
    """Return the names that a file with this schema has for columns."""
    old = {new: old for old, new in COLUMNS.items() if old in schema.names}
    return [old.get(name, name) for name in names]


def renamed_columns(table: pa.Table) -> pa.Table:
    """Return a table of rows with today's names of columns and of what ended a rollout."""
    table = table.rename_columns([COLUMNS.get(name, name) for name in table.column_names])
    at = table.schema.get_field_index("ended_by")
    for old, new in ENDED_BY.items() if at >= 0 else ():
        column = table["ended_by"]
        table = table.set_column(at, "ended_by", pc.if_else(pc.equal(column, old), new, column))
    return table
