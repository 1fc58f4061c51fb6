"""A tau-bench folder as it is read: the retail tasks, their tools, policy and shop."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from truing.envs.data.records import read_records, usable_records
from truing.errors import DataError
from truing.types.message import ToolSpec

from .store import InitialState, Record

DOMAIN = "retail"


class Action(BaseModel):
    """One call of a published solution."""

    name: str
    kwargs: dict[str, Any]


class TaskRow(BaseModel):
    """One line of ``tasks.jsonl``."""

    id: str
    domain: str
    user_id: str
    instruction: str
    actions: tuple[Action, ...]
    outputs: tuple[str, ...]


class _Function(BaseModel):
    name: str
    description: str
    parameters: dict[str, Any]


class _ToolRow(BaseModel):
    domain: str
    function: _Function


class _Entry(BaseModel):
    key: str
    value: dict[str, Any]


@dataclass(frozen=True)
class Folder:
    """The retail domain of a tau-bench folder, and the number of tasks left out."""

    tasks: tuple[TaskRow, ...]
    left_out: int
    notes: tuple[str, ...]
    specs: tuple[ToolSpec, ...]
    policy: str
    start: InitialState


def read_folder(folder: Path) -> Folder:
    """Read and check what the retail domain needs."""
    rows = usable_records(folder / "tasks.jsonl", TaskRow, key=lambda row: row.id)
    tools = read_records(folder / "tools.jsonl", _ToolRow)
    tables = {name: _table(folder / f"retail_db_{name}.jsonl") for name in ("users", "orders", "products")}
    tasks = tuple(row for row in rows.converted if row.domain == DOMAIN)
    return Folder(
        tasks=tasks,
        left_out=len(rows.converted) - len(tasks),
        notes=rows.notes(),
        specs=tuple(_spec(row.function) for row in tools if row.domain == DOMAIN),
        policy=_policy(folder / "retail_policy.md"),
        start=InitialState(**tables),
    )


def _table(path: Path) -> dict[str, Record]:
    """A table of the shop by its keys."""
    return {entry.key: entry.value for entry in read_records(path, _Entry)}


def _spec(function: _Function) -> ToolSpec:
    """A published tool; an argument that it does not have is refused rather than handed on."""
    schema = {**function.parameters, "additionalProperties": False}
    return ToolSpec(function.name, function.description, schema)


def _policy(path: Path) -> str:
    """Return the shop's policy for its agents."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DataError(
            f"data cannot be read: {path}", got=error, expected="the policy of the retail domain"
        ) from error
