"""A run may have more steps than fit into memory: its record is read one step at a time."""

import json
import tracemalloc

import pytest
from recorded import write_steps

from truing.record import RunReader, RunWriter, compact, step_columns

STEPS, FACT_BYTES = 400, 50_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Steps with large facts: 20 MB."""
    run = tmp_path_factory.mktemp("long") / "run"
    with RunWriter(run) as writer:
        writer.write_run({})
        write_steps(writer, range(STEPS))
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    with open(run / "steps.jsonl", "w") as file:
        for line in lines:
            file.write(json.dumps(line | {"facts": {"large": "x" * FACT_BYTES}}) + "\n")
    return run


@pytest.mark.integration
@pytest.mark.parametrize(
    "read",
    [
        lambda run: RunWriter(run, resume=True).close(),
        lambda run: RunReader(run).check_complete(),
        lambda run: RunReader(run).find_table("grpo", STEPS - 1),
        lambda run: RunReader(run).count_steps(),
        compact,
    ],
    ids=["resume", "check", "samples", "count", "compact"],
)
def test_few_steps_are_in_memory_at_a_time(read, run, monkeypatch):
    monkeypatch.setattr(step_columns, "ROWS_AT_A_TIME", 10)
    tracemalloc.start()
    try:
        read(run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < STEPS * FACT_BYTES / 5
