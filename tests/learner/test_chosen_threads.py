"""The threads of a run: the recipe's, those of the run it continues, or chosen by size and speed."""

import pytest
import torch
from torch import nn

import truing
from truing.config import resolve
from truing.learner import threads
from truing.learner.threads import chosen_threads, set_threads
from truing.record import RunReader


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
    ("count", "seconds", "expected"),
    [
        (1e6, {1: 9.0, 2: 1.0}, 1),
        (1e8, {1: 2.0, 2: 1.1}, 2),
        (1e8, {1: 1.0, 2: 0.9}, 1),
        (1e8, {1: 1.0, 2: 9.0}, 1),
    ],
)
def test_more_threads_are_used_where_they_are_faster(monkeypatch, count, seconds, expected):
    monkeypatch.setattr(threads, "_seconds", seconds.__getitem__)
    assert chosen_threads(Model(count)) == expected
    assert torch.get_num_threads() == 2


def test_the_products_are_measured():
    assert 0 < threads._seconds(1) < 5


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
    monkeypatch.setattr("truing.learner.threads.chosen_threads", lambda policy: 2)
    run = truing.train(table, out=tmp_path / "run").run
    assert RunReader(run).run_json()["machine"]["threads"] == 2
    monkeypatch.setattr("truing.learner.threads.chosen_threads", lambda policy: 1)
    truing.train(table, out=run, resume=True)
    assert torch.get_num_threads() == 2
    truing.evaluate(run)
    assert torch.get_num_threads() == 2
