"""A recorded run."""

import pytest
from recorded import NAN, write_steps

from truing.record import RunWriter


@pytest.fixture
def run(tmp_path):
    """A closed run of three steps and two events."""
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"run_id": "r", "tokenizer": "tok"})
        writer.write_recipe("seed = 1\n")
        writer.write_event("started", steps=3)
        write_steps(writer, range(3))
        writer.write_event("finished", gain=NAN)
    return tmp_path / "run"
