"""What ranks and engines reserve, and which clusters can hold it."""

import pytest

from truing.cluster.bundles import bundles_of, check_fits, uses_gpus
from truing.config import resolve
from truing.errors import RecipeError

VLLM = {"kind": "vllm"}


@pytest.fixture
def bundles():
    """The bundles of a recipe with these tables."""

    def make(on_gpu, **tables):
        recipe = {
            "name": "placed",
            "stages": ["grpo"],
            "model": {"name": "tiny"},
            "env": {"name": "arithmetic"},
            "grpo": {"steps": 1, "prompts_per_step": 64, "learning_rate": 1e-3},
        }
        return bundles_of(resolve({**recipe, **tables}), on_gpu)

    return make


@pytest.mark.parametrize(
    ("on_gpu", "tables", "expected"),
    [
        (False, {"trainer": {"ranks": 2}}, [{"CPU": 1}] * 2),
        (False, {"trainer": {"ranks": 2}, "model": {"name": "tiny", "threads": 4}}, [{"CPU": 4}] * 2),
        (True, {"trainer": {"ranks": 8}}, [{"CPU": 1, "GPU": 1}] * 8),
        # threads of a CPU model are not those of a rank on a GPU
        (True, {"model": {"name": "tiny", "threads": 4}}, [{"CPU": 1, "GPU": 1}]),
        # threads of tools share the rank's CPU, processes have their own
        (True, {"episode": {"workers": 8}}, [{"CPU": 1, "GPU": 1}]),
        (True, {"episode": {"workers": 8, "processes": True}}, [{"CPU": 9, "GPU": 1}]),
        (
            True,
            {"trainer": {"ranks": 2}, "engine": {**VLLM, "count": 3}, "episode": {"processes": True}},
            [{"CPU": 17, "GPU": 1}] * 2 + [{"CPU": 1, "GPU": 1}] * 3,
        ),
        (False, {"engine": {**VLLM, "count": 1}}, [{"CPU": 1}, {"CPU": 1}]),
        (
            True,
            {"engine": {**VLLM, "count": 1, "tensor_parallel": 4}},
            [{"CPU": 1, "GPU": 1}, {"CPU": 4, "GPU": 4}],
        ),
    ],
)
def test_the_bundles_of_a_recipe(on_gpu, tables, expected, bundles):
    assert bundles(on_gpu, **tables) == expected


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [("auto", 0, False), ("auto", 8, True), ("cuda", 0, True), ("cpu", 8, False)],
)
def test_which_ranks_get_a_gpu(device, gpus, expected, mini):
    assert uses_gpus(resolve(mini(model={"name": "tiny", "device": device})), {"GPU": gpus}) == expected


NODE = {"CPU": 16, "GPU": 8, "memory": 1e12}


def test_a_cluster_that_holds_what_is_asked():
    check_fits([{"CPU": 2, "GPU": 1}] * 8, [NODE])
    check_fits([{"CPU": 2, "GPU": 1}] * 16, [NODE, NODE])
    check_fits([{"CPU": 1}] * 16, [NODE])


@pytest.mark.parametrize(
    ("bundles", "nodes", "what", "got", "expected"),
    [
        (
            [{"CPU": 1}] * 17,
            [{"CPU": 16}],
            "too few CPUs",
            "16 CPU, of nodes: 16 CPU",
            "17 CPU: 17 × (1 CPU)",
        ),
        (
            [{"CPU": 1, "GPU": 1}],
            [{"CPU": 2}],
            "too few GPUs",
            "2 CPU, of",
            "1 CPU, 1 GPU: 1 × (1 CPU, 1 GPU)",
        ),
        (
            [{"CPU": 9, "GPU": 1}] * 4 + [{"CPU": 1, "GPU": 1}] * 8,
            [NODE],
            "too few CPUs and GPUs",
            "16 CPU, 8 GPU",
            "44 CPU, 12 GPU: 4 × (9 CPU, 1 GPU), 8 × (1 CPU, 1 GPU)",
        ),
        # enough in sum, but no node holds one, or all of them
        (
            [{"CPU": 9}],
            [{"CPU": 8}, {"CPU": 8}],
            "too few nodes of this size",
            "16 CPU, of nodes: 8 CPU; 8",
            "",
        ),
        ([{"CPU": 5}] * 3, [{"CPU": 8}, {"CPU": 8}], "too few nodes of this size", "16 CPU", "15 CPU"),
    ],
)
def test_a_cluster_that_cannot_is_refused_with_what_is_asked_and_there(bundles, nodes, what, got, expected):
    with pytest.raises(RecipeError, match=what) as error:
        check_fits(bundles, nodes)
    assert got in error.value.got
    assert expected in error.value.expected


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({**VLLM, "count": 1}, "trainer.ranks = 2 needs as many engine.count, got 1"),
        ({"count": 2}, 'engine.count: only with engine.kind = "vllm"'),
        ({**VLLM, "arguments": {"tensor_parallel_size": 2}}, "tensor_parallel_size: set tensor_parallel"),
        ({**VLLM, "count": 2, "servers": ["http://a", "http://b"]}, "set one of them"),
    ],
)
def test_engines_that_cannot_be_placed_are_refused(engine, message, bundles):
    with pytest.raises(RecipeError, match=message):
        bundles(False, trainer={"ranks": 2}, engine=engine)
