"""The tiny model, as trainers of others load it."""

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The tiny model, as a folder that TRL loads."""
    from truing.models.load import load

    loaded = load("tiny", device="cpu")
    path = tmp_path_factory.mktemp("tiny")
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def config(tmp_path):
    """What both trainers of TRL are given here: two updates on a CPU, in float32, with nothing kept."""
    return {
        "output_dir": str(tmp_path / "trl"),
        "max_steps": 2,
        "learning_rate": 1e-3,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "model_init_kwargs": {"dtype": "float32"},
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }
