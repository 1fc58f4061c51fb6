"""One tiny model folder for the room; nothing here touches the user's cache."""

import pytest

from truing.models import tiny
from truing.models.load import load


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny.build(folder)
    return folder


@pytest.fixture
def loaded(tiny_folder):
    return load(str(tiny_folder), device="cpu")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
