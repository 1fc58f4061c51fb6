"""trackio's projects: its database, or an exported table in parquet.

trackio 0.43 (sqlite_storage.py) has a row per call of ``log`` in the table ``metrics``, with the values as
JSON, and a run's configuration in ``configs``. Values without a JSON number are texts.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet

from truing.doctor.importers.log import Log, log_of_records, parse_object
from truing.errors import RecordError

TEXTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read(path: Path, run: str | None) -> Log:
    """Return the log of a project's run.

    Args:
        path: of the database.
        run: the name of the run; None for a single one.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            rows = store.execute("SELECT id, run_name, step, metrics FROM metrics ORDER BY id").fetchall()
            configs = dict(store.execute("SELECT run_name, config FROM configs").fetchall())
    except sqlite3.Error as error:
        raise RecordError(
            f"{path} is not a project of trackio",
            got=error,
            expected="tables `metrics` and `configs`, as trackio 0.43 writes them",
            remedy="name the .db file of the project, in TRACKIO_DIR",
        ) from error
    name = _chosen(path, [row[1] for row in rows], run)
    where = f"{path}, row {{}} of metrics,"
    records = [
        (where.format(row), _values(parse_object(text, where.format(row)), step))
        for row, owner, step, text in rows
        if owner == name
    ]
    config = parse_object(configs[name], f"{path}, the config of {name},") if name in configs else {}
    return log_of_records(f"trackio's run {name}", records, config)


def read_parquet(path: Path, run: str | None) -> Log:
    """Return the log of a run in an exported table, which has a column for each metric."""
    rows = pyarrow.parquet.read_table(path).to_pylist()
    if not all("run_name" in row and "step" in row for row in rows):
        raise RecordError(f"{path} is not a table of trackio", expected="columns run_name and step")
    name = _chosen(path, [row["run_name"] for row in rows], run)
    records = [
        (f"{path}, row {count},", _values(row, row["step"]))
        for count, row in enumerate(rows, 1)
        if row["run_name"] == name
    ]
    return log_of_records(f"trackio's run {name}", records)


def _chosen(path: Path, names: Sequence[str], run: str | None) -> str:
    """Return the requested run."""
    runs = sorted(set(names))
    if run is None and len(runs) == 1:
        return runs[0]
    if run not in runs:
        raise RecordError(
            f"{path} has {len(runs)} runs" if run is None else f"{path} has no such run",
            got=run,
            expected=", ".join(runs) or "at least one with metrics",
            remedy="name one: run=NAME",
        )
    return run


def _values(record: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Return the values of one record, with the tracker's step."""
    values = {key: TEXTS.get(x, x) if isinstance(x, str) else x for key, x in record.items() if key != "id"}
    return {**values, "step": step}
