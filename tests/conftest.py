"""What many rooms need: the tiny model, and a recipe for it that runs in seconds.

Fixtures import torch and Truing when they run: the process that hands tests to the others needs neither.
"""

import copy
import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from folders import WRITTEN, published_files
from hypothesis import settings

from dev import let_processes_import
from truing.utils.process_state import SIGNALS

BROWSER = Path(__file__).parent / "browser"

let_processes_import()
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # tiny tensors, a process on each core: a second thread only waits
gc.disable()  # collecting tests makes a million objects and no garbage; pytest_collection_finish enables it
settings.register_profile("truing", deadline=None)  # a busy machine is slow, and that is no failure
settings.load_profile("truing")
os.fsync = os.fstat  # no test cuts the power, and a disk takes milliseconds; a wrong descriptor still raises
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp()  # trackio asks once, when it is imported


def process_state() -> dict:
    """Return state of the process that a test may change, and must put back."""
    return {number.name: signal.getsignal(number) for number in SIGNALS} | {"folder": os.getcwd()}


AT_START = process_state()


@pytest.fixture(scope="session")
def _tiny():
    from truing.models.load import load

    return load("tiny", device="cpu")


@pytest.fixture
def tiny(_tiny):
    """The tiny model, a copy of its own for each test."""
    return replace(_tiny, model=copy.deepcopy(_tiny.model), tokenizer=copy.deepcopy(_tiny.tokenizer))


@pytest.fixture
def chat(tiny):
    """How the tiny model is spoken to."""
    from truing.chat import make_chat

    return make_chat(tiny.tokenizer, tiny.stop_ids)


@pytest.fixture
def mini():
    """A table of a recipe: ``mini(grpo={"steps": 5})`` changes keys within its parts."""
    from runs import mini_table

    return mini_table


@pytest.fixture(scope="session")
def _trained_runs(tmp_path_factory):
    """Finished runs by the JSON of their recipe and their reward functions."""
    import truing

    runs = {}

    def train(table, rewards):
        key = (json.dumps(table, sort_keys=True), rewards)
        if key not in runs:
            out = tmp_path_factory.mktemp("trained") / "run"
            runs[key] = truing.train(
                table, rewards=rewards or None, out=out, on_event=lambda kind, facts: None
            )
        return runs[key]

    return train


@pytest.fixture
def trained_run(_trained_runs, mini, tmp_path):
    """``trained_run("run", seed=1)``: the result of a finished run of the mini recipe with these changes.

    ``rewards`` are functions of a module. Each process trains a recipe once; each test gets a copy of the run
    in a folder of this name. A test that patches what trains or rewards needs a run of its own.
    """

    def copy_to(name, rewards=(), **changes):
        result = _trained_runs(mini(**changes), tuple(rewards))
        return replace(result, run=shutil.copytree(result.run, tmp_path / name))

    return copy_to


@pytest.fixture
def recipe(mini):
    """The same, resolved."""
    from truing.config import resolve

    return lambda **changes: resolve(mini(**changes))


@pytest.fixture
def adapter_run(recipe, tmp_path):
    """``adapter_run((1.0, 2.0), top_p=0.9)``: the directory and the policy of a run of an adapter of rank 2.

    All its weights rise by 1.0, and then by 2.0; there is a checkpoint of each step.
    """
    import torch

    from truing.config import to_toml
    from truing.learner import checkpoint
    from truing.models import tiny as tiny_model
    from truing.models.load_policy import load_policy
    from truing.models.lora import trainable_parameters

    def make(rises, **sampling):
        tiny_model.build(tmp_path / "model")
        model = {"name": str(tmp_path / "model"), "device": "cpu"}
        made = recipe(stages=["sft"], model=model, lora={"rank": 2}, sampling=sampling)
        loaded, policy = load_policy(made)
        parameters = trainable_parameters(policy)
        optimizer = torch.optim.AdamW(parameters.values())
        folder = tmp_path / "run"
        for step, rise in enumerate(rises, start=1):
            with torch.no_grad():
                for parameter in parameters.values():
                    parameter.add_(rise)
            checkpoint.save(
                folder / "checkpoints",
                checkpoint.CheckpointState("sft", step),
                {"trainable": parameters},
                optimizer,
            )
        (folder / "recipe.toml").write_text(to_toml(made))
        facts = {"model": {"digest": loaded.digest}, "recipe": made.model_dump(mode="json")}
        (folder / "run.json").write_text(json.dumps(facts))
        return folder, policy

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what reads the published files, or looks at the board in a browser."""
    for item in items:
        if "published" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
        if BROWSER in item.path.parents:
            item.add_marker(pytest.mark.browser)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among what was made before."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail the last test of a file that leaves handlers of signals or the working directory changed."""
    yield
    if nextitem is None or nextitem.path != item.path:
        assert process_state() == AT_START, f"{item.path.name} leaves the process in another state"


@pytest.fixture(scope="session")
def published() -> Path:
    """The published data files; who asks for them is marked ``data``."""
    return published_files()


@pytest.fixture(scope="session", params=["written", pytest.param("published", marks=pytest.mark.data)])
def data(request: pytest.FixtureRequest) -> Path:
    """A folder in the published shapes: rows written for the tests, then the published files."""
    return WRITTEN if request.param == "written" else request.getfixturevalue("published")
