"""Files of trackers: W&B's log in parts, trackio's projects with several runs, several runs in a folder."""

import json
import sqlite3
import struct
import zlib

import pyarrow
import pyarrow.parquet
import pytest
from wandb.proto import wandb_internal_pb2

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.diagnose_log import diagnose_log
from truing.doctor.importers.steps import import_run
from truing.doctor.importers.wandb import BLOCK, HEADER
from truing.doctor.verdict import Verdict
from truing.errors import RecordError

SHARE = "train/frac_reward_zero_std"


def wandb_log(path, records):
    """W&B's log of these records, a part never over the end of a block."""
    data = HEADER
    for record in records:
        rest, kinds = record, (1, 2)  # whole, or first
        while rest:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = kinds[bool(rest)]
            checksum = zlib.crc32(bytes([kind]) + part)
            data, kinds = (
                data + struct.pack("<IHB", checksum, len(part), kind) + part,
                (4, 3),
            )  # last, or middle
    path.write_bytes(data)
    return path


def history(step, **more):
    """A record of what was logged at once."""
    record = wandb_internal_pb2.Record()
    for name, value in {"_step": step, SHARE: 0.25, **more}.items():
        item = record.history.item.add()
        item.nested_key.append(name)
        item.value_json = json.dumps(value)
    return record.SerializeToString()


def test_records_of_wandb_may_lie_in_several_blocks(tmp_path):
    records = [
        history(step, note="x" * length) for step, length in enumerate((10, BLOCK - 150, 3 * BLOCK, 5))
    ]
    steps = import_run(read_log(wandb_log(tmp_path / "run-a.wandb", records))).steps
    assert [step.step + 1 for step in steps] == [0, 1, 2, 3]


def test_the_end_of_a_block_may_be_too_short_for_a_part(tmp_path):
    bare = len(history(0, note="x" * 30_000)) - 30_000  # what a record has beside its note
    for left in range(1, 8):
        note = BLOCK - len(HEADER) - 7 - bare - left
        path = wandb_log(tmp_path / "run-a.wandb", [history(0, note="x" * note), history(1)])
        assert len(import_run(read_log(path)).steps) == 2


def test_a_log_of_wandb_that_is_still_written_ends_before_what_is_not_whole(tmp_path):
    path = wandb_log(tmp_path / "run-a.wandb", [history(0), history(1)])
    path.write_bytes(path.read_bytes()[:-3])
    assert len(import_run(read_log(path)).steps) == 1


def test_a_log_of_wandb_with_another_bit_is_damaged(tmp_path):
    path = wandb_log(tmp_path / "run-a.wandb", [history(0), history(1)])
    data = bytearray(path.read_bytes())
    data[data.index(b"0.25")] ^= 1  # still a number
    path.write_bytes(data)
    with pytest.raises(RecordError, match="another checksum of the part at byte 7"):
        read_log(path)


def test_of_several_runs_in_a_folder_one_must_be_named(tmp_path):
    for name in ("offline-run-1-a", "offline-run-2-b"):
        (tmp_path / name).mkdir()
        wandb_log(tmp_path / name / "run-x.wandb", [history(1)])
    with pytest.raises(RecordError, match=r"2 runs(.|\n)*offline-run-1-a"):
        read_log(tmp_path)
    assert len(import_run(read_log(tmp_path / "offline-run-1-a")).steps) == 1


def project(path, runs, config):
    """trackio's database with these runs, name → rates by step."""
    with sqlite3.connect(path) as store:
        store.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        store.execute("CREATE TABLE configs (run_name TEXT, config TEXT)")
        for name, rates in runs.items():
            store.execute("INSERT INTO configs VALUES (?, ?)", (name, json.dumps(config)))
            for step, rate in enumerate(rates):
                values = {"train/learning_rate": rate, SHARE: 0.5, "train/grad_norm": "NaN"}
                row = name, step, json.dumps(values)
                store.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", row)
    store.close()
    return path


def test_a_rate_above_the_declared_one_is_proven(tmp_path):
    path = project(
        tmp_path / "p.db", {"a": [1e-3, 8e-3], "b": [1e-3, 1e-4]}, {"learning_rate": 1e-3, "beta": 0.0}
    )
    facts = {
        run: {each.code: each.verdict for each in diagnose_log(path, ["OPT004"], run=run).diagnosis.results()}
        for run in ("a", "b")
    }
    assert facts == {"a": {"OPT004": Verdict.PROVEN}, "b": {"OPT004": Verdict.CLEAN}}


def test_a_rule_that_had_its_inputs_once_was_checked(tmp_path):
    path = project(tmp_path / "p.db", {"a": [1e-3, None]}, {"learning_rate": 1e-3})
    assert diagnose_log(path, ["OPT004", "TOK001"]).exact_not_checked == 1


def test_a_run_of_a_project_is_named_and_its_nan_is_one(tmp_path):
    path = project(tmp_path / "p.db", {"a": [1e-3], "b": [1e-3, 1e-4]}, {})
    for run, message in ((None, "has 2 runs"), ("c", "no such run")):
        with pytest.raises(RecordError, match=message):
            read_log(path, run)
    steps = import_run(read_log(tmp_path, "b")).steps
    assert [step.metrics["lr"] for step in steps] == [1e-3, 1e-4]
    assert steps[0].metrics["grad/norm"] != steps[0].metrics["grad/norm"]


def test_an_export_of_trackio_is_a_table(tmp_path):
    rows = [
        {"id": 7, "run_name": "a", "step": 0, "train/learning_rate": None, SHARE: 0.5},
        {"id": 8, "run_name": "a", "step": 1, "train/learning_rate": 1e-3, SHARE: 0.25},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    first, second = import_run(read_log(tmp_path / "p.parquet")).steps
    assert first.metrics == {"group/zero_variance_share": 0.5}
    assert second.metrics == {"group/zero_variance_share": 0.25, "lr": 1e-3}
