"""A WorkBench folder as it is read: tasks, tools, and the office before any action."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel

from truing.envs.data.records import read_records, usable_records
from truing.errors import DataError
from truing.types.message import ToolSpec

from .office import InitialState, Office
from .tables import Row, Table

REQUIRED = {"type": "string", "minLength": 1}


class ReferenceCall(BaseModel):
    """One call of a published solution; all its arguments are named."""

    tool: str
    args: dict[str, str]
    pos: Annotated[tuple[Any, ...], Field(max_length=0)] = ()


class TaskRow(BaseModel):
    """One line of ``tasks.jsonl``."""

    id: str
    domain: str
    query: str
    base_template: str
    domains: tuple[str, ...]
    ground_truth_calls: tuple[ReferenceCall, ...]


class _Parameter(BaseModel):
    name: str


class _ToolRow(BaseModel):
    name: str
    parameters: tuple[_Parameter, ...]
    docstring: str


class _Address(BaseModel):
    email: str


class _Cells(RootModel[dict[str, str]]):
    """A row of a table: text in every column."""


@dataclass(frozen=True)
class Folder:
    """The content of a WorkBench folder."""

    tasks: tuple[TaskRow, ...]
    specs: tuple[ToolSpec, ...]
    start: InitialState
    notes: tuple[str, ...]


def read_folder(folder: Path) -> Folder:
    """Read and check a whole folder."""
    start = InitialState(
        events=_table(folder / "state_calendar_events.jsonl", "event_id"),
        emails=_table(folder / "state_emails.jsonl", "email_id"),
        tasks=_table(folder / "state_project_tasks.jsonl", "task_id"),
        customers=_table(folder / "state_customer_relationship_manager_data.jsonl", "customer_id"),
        visits=_rows(folder / "state_analytics_data.jsonl"),
        addresses=[row.email for row in read_records(folder / "email_addresses.jsonl", _Address)],
    )
    office = Office(start)
    specs = tuple(_spec(row, office) for row in read_records(folder / "tools.jsonl", _ToolRow))
    tasks = usable_records(folder / "tasks.jsonl", TaskRow, key=lambda row: row.id)
    return Folder(tuple(tasks.converted), specs, start, tasks.notes())


def _rows(path: Path) -> list[Row]:
    """The rows of a table."""
    return [cells.root for cells in read_records(path, _Cells)]


def _table(path: Path, key: str) -> Table[Any]:
    """A table by its key column; customers may be added without some columns."""
    return Table(key, {row[key]: row for row in _rows(path)})


def _spec(row: _ToolRow, office: Office) -> ToolSpec:
    """A published tool: all arguments are text, and those are required that it cannot do without."""
    own: Mapping[str, inspect.Parameter] = inspect.signature(office.function(row.name)).parameters
    named = [parameter.name for parameter in row.parameters]
    if set(named) != set(own):
        raise DataError(f"tool {row.name!r} has other parameters", got=named, expected=", ".join(own))
    required = [name for name in named if own[name].default is inspect.Parameter.empty]
    schema = {
        "type": "object",
        "properties": {name: dict(REQUIRED) if name in required else {"type": "string"} for name in named},
        "required": required,
        "additionalProperties": False,
    }
    # the docstrings were written for a format string, where a brace is doubled
    return ToolSpec(row.name, row.docstring.replace("{{", "{").replace("}}", "}"), schema)
