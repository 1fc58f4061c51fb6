"""Run directories that earlier versions wrote are read by today's names."""

import json

import pyarrow as pa
import pytest
from recorded import write_steps

from truing.record import RunReader, RunWriter, compact
from truing.record.index import SegmentRef
from truing.record.old_names import COLUMNS
from truing.record.sample_columns import SampleColumns
from truing.record.segments import SCHEMA
from truing.record.steps_reader import StepsReader
from truing.utils.atomic_files import sha256

OLD = {new: old for old, new in COLUMNS.items()}
METRICS = {"entropy/contract": 1.5, "entropy/drawn": 1.25, "reward/mean": 0.5}
SECONDS = {"world": 2.0, "decode": 1.0}
GRADIENTS = {"norm": 1.0, "trainer": 1.0, "difference": 0.5, "rows": 2, "device": "cpu", "pulled": 1.0}
MISSING = {"weight": "w", "moved": 0.5, "silent": 1}
FACTS = {"arrival": {**GRADIENTS, "free": 1.0, "unheard": MISSING}, "looks": {"update": 3.0}}


def rewrite(run):
    """Rewrite a run as an earlier version would have written it."""
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"metrics": METRICS, "seconds": SECONDS, "facts": FACTS}
        path = run / "rollouts" / line["segment"]["file"]
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        table = table.rename_columns([OLD.get(name, name) for name in table.column_names])
        at = table.schema.get_field_index("ended_by")
        table = table.set_column(at, "ended_by", pa.array(["world"] * table.num_rows))
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        line["segment"]["sha256"] = sha256(path.read_bytes())
    (run / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "run.json").write_text(json.dumps({"contract": {"temperature": 1.0}}))


@pytest.fixture
def runs(tmp_path):
    """A run of today, and the same with the names of an earlier version."""
    made = tmp_path / "now", tmp_path / "before"
    for run in made:
        with RunWriter(run) as writer:
            write_steps(writer, range(2))
    rewrite(made[1])
    return made


@pytest.mark.parametrize("compacted", [False, True])
def test_rows_have_todays_names(runs, compacted, monkeypatch):
    _, before = runs
    if compacted:
        old_schema = pa.schema([field.with_name(OLD.get(field.name, field.name)) for field in SCHEMA])
        with monkeypatch.context() as earlier:  # as the earlier version compacted
            earlier.setattr("truing.record.compaction.SCHEMA", old_schema)
            for module in ("segments", "store"):
                earlier.setattr(f"truing.record.{module}.renamed_columns", lambda table: table)
            compact(before)
        compact(before)  # once more, by today's names
    for step in (0, 1):
        for one, other in zip(*(RunReader(run).samples("grpo", step) for run in runs), strict=True):
            assert other.token_gradient.allclose(one.token_gradient, equal_nan=True)
            assert other.sample.sampling_params == one.sample.sampling_params
            assert other.ended_by == "environment"
    refs = [SegmentRef.from_step(step) for step in RunReader(before).steps()]
    for table in SampleColumns(before).read_steps(refs, ["token_gradient", "ended_by", "sampling_params"]):
        assert table.column_names == ["token_gradient", "ended_by", "sampling_params"]
        assert set(table["ended_by"].to_pylist()) == {"environment"}


def test_metrics_seconds_facts_and_run_keys_have_todays_names(runs):
    reader = RunReader(runs[1])
    step = reader.steps()[0]
    assert step.metrics == {"entropy/mean": 1.5, "entropy/sampled": 1.25, "reward/mean": 0.5}
    assert step.seconds == {"environment": 2.0, "decode": 1.0}
    assert step.facts == {
        "row_gradients": {**GRADIENTS, "free": 1.0, "missing_gradient": MISSING},
        "audit_cost": {"update": 3.0},
    }
    assert reader.run_json() == {"sampling_params": {"temperature": 1.0}}


@pytest.mark.parametrize("declared", [True, False])
def test_columns_of_a_run_that_two_versions_wrote_are_one(runs, declared):
    _, before = runs
    lines = [json.loads(line) for line in (before / "steps.jsonl").read_text().splitlines()]
    lines[1] |= {"metrics": {"entropy/mean": 3.0}, "seconds": {"environment": 4.0}}
    (before / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = {"entropy/contract", "entropy/mean", "seconds/world", "seconds/environment"}
    reader = StepsReader(before)
    reader.refresh(names if declared else [])
    assert reader.columns.column("entropy/mean").tolist() == [1.5, 3.0]
    assert reader.columns.column("seconds/environment").tolist() == [2.0, 4.0]
    assert "entropy/contract" not in reader.columns.numbers
