"""The threads of a run: the recipe's, those of the run it continues, or chosen by size."""

import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

import truing
from truing.config import resolve
from truing.record import RunReader
from truing.trainer import threads
from truing.trainer.threads import chosen_threads, set_threads
from truing.utils.cores import usable_cores


class Model(nn.Module):
    """A model of a given size, without its memory."""

    device = torch.device("cpu")

    def __init__(self, count):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1).expand(int(count)), requires_grad=False)

    def get_base_model(self):
        return self


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("count", "own", "cores", "expected"),
    [(1e6, 4, 4, 1), (1e8, 4, 4, 4), (1e8, 4, 2, 2), (1e8, 1, 8, 1), (1e8, 4, 1, 1)],
)
def test_a_larger_model_takes_torchs_threads_on_usable_cores(monkeypatch, count, own, cores, expected):
    monkeypatch.setattr(threads, "TORCH_THREADS", own)
    monkeypatch.setattr(threads, "usable_cores", lambda: cores)
    torch.set_num_threads(1)  # as an earlier run in this process may leave it
    assert chosen_threads(Model(count)) == expected


@pytest.mark.slow
def test_starts_beside_each_other_choose_one_number():
    script = """
import torch
from truing.trainer.threads import chosen_threads
model = torch.nn.Module()
model.weight = torch.nn.Parameter(torch.zeros(1).expand(10**8), requires_grad=False)
print(chosen_threads(model))
"""
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    start = partial(subprocess.Popen, stdout=subprocess.PIPE, text=True, env=variables)
    starts = [start([sys.executable, "-c", script]) for _ in range(3)]  # they keep each other's cores busy
    chosen = [process.communicate()[0].strip() for process in starts]
    assert len(set(chosen)) == 1
    assert 1 <= int(chosen[0]) <= usable_cores()


def test_the_recipe_wins_then_the_run_that_is_continued(mini):
    model = Model(1)
    table = mini()
    set_threads(resolve(table | {"model": {"name": "tiny", "threads": 2}}), model, 1, 1)
    assert torch.get_num_threads() == 2
    recipe = resolve(table | {"model": {"name": "tiny"}})
    set_threads(recipe, model, None, 2)  # of several ranks
    assert torch.get_num_threads() == 2
    set_threads(recipe, model, None, 1)
    assert torch.get_num_threads() == 1
    set_threads(recipe, model, 2, 1)
    assert torch.get_num_threads() == 2


@pytest.mark.integration
def test_a_resumed_run_computes_with_the_threads_of_its_start(mini, tmp_path, monkeypatch):
    table = mini(stages=["sft"], model={"name": "tiny"})
    monkeypatch.setattr("truing.trainer.threads.chosen_threads", lambda policy: 2)
    run = truing.train(table, out=tmp_path / "run").run
    assert RunReader(run).run_json()["machine"]["threads"] == 2
    monkeypatch.setattr("truing.trainer.threads.chosen_threads", lambda policy: 1)
    truing.train(table, out=run, resume=True)
    assert torch.get_num_threads() == 2
    truing.evaluate(run)
    assert torch.get_num_threads() == 2
