"""Which keys a resumed run may change: those that change where it runs, never what it trains."""

import tomllib

import pytest

from truing.config import resolve, to_toml
from truing.errors import RecordError
from truing.record import RunReader, RunWriter
from truing.trainer.recorded_recipe import check_same_recipe, with_recorded_replicas

VLLM = {"kind": "vllm", "count": 2}


def table_of(recipe):
    return tomllib.loads(to_toml(recipe))


def test_placement_and_diagnosis_may_change(mini):
    recorded = table_of(resolve(mini(engine=VLLM)))
    changed = {
        "engine": {**VLLM, "count": 4},
        "trainer": {"ranks": 2, "restarts": 0},
        "doctor": {"stop": False},
    }
    check_same_recipe(resolve(mini(**changed)), recorded)


@pytest.mark.parametrize("key", ["\nmax_requests = 256\n", "\nahead = 0\n", "\ncuda_graphs = false\n"])
def test_a_run_of_a_version_without_a_key_is_resumed_with_its_default(mini, key):
    recorded = to_toml(resolve(mini()))
    assert key in recorded
    check_same_recipe(resolve(mini()), tomllib.loads(recorded.replace(key, "\n")))


def test_how_engines_sample_may_not(mini):
    recorded = table_of(resolve(mini(engine=VLLM)))
    with pytest.raises(RecordError, match=r"engine\.max_requests' differs"):
        check_same_recipe(resolve(mini(engine={**VLLM, "max_requests": 8})), recorded)


@pytest.mark.parametrize(
    ("trainer", "machine", "expected"),
    [
        ({"ranks": 2}, {"replicas": 2}, 2),
        ({"ranks": 3}, {"replicas": 2}, "auto"),
        ({"ranks": 2, "replicate": 1}, {"replicas": 2}, 1),
        ({"ranks": 2}, {}, "auto"),
        ({"ranks": 2}, {"replicas": 3}, "auto"),
        ({"ranks": 2}, {"replicas": 0}, "auto"),
    ],
)
def test_as_many_ranks_resume_with_as_many_replicas(mini, tmp_path, trainer, machine, expected):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"recipe": mini(trainer={"ranks": 2}), "machine": machine})
    resumed = with_recorded_replicas(resolve(mini(trainer=trainer)), RunReader(tmp_path / "run"))
    assert resumed.trainer.replicate == expected
