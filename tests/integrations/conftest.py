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
