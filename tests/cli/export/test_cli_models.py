"""`truing models`: its list, as text and JSON."""

import json

import pytest
from typer.testing import CliRunner

from truing.cli.export.models import app
from truing.errors import ModelError
from truing.models.load import load


@pytest.fixture
def truing(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUING_CACHE", str(tmp_path))
    return lambda *words: CliRunner().invoke(app, words, catch_exceptions=False)


def test_the_list_marks_cached_models(truing, tmp_path):
    before = {model["name"]: model for model in json.loads(truing("--json").stdout)["models"]}
    assert set(before) == {"smollm2-135m", "tiny", "tiny-moe"}
    assert before["smollm2-135m"]["licence"] == "Apache-2.0"
    assert before["tiny"]["path"] is None
    truing("get", "tiny")
    after = {model["name"]: model for model in json.loads(truing("--json").stdout)["models"]}
    assert after["tiny"]["path"] == str(tmp_path / "models" / "tiny")
    assert after["smollm2-135m"]["path"] is None


def test_the_list_for_people(truing):
    text = truing().stdout
    assert "smollm2-135m" in text
    assert "134.5 M" in text


def test_get_prints_a_folder_that_loads(truing):
    result = truing("get", "tiny")
    assert result.exit_code == 0
    assert load(result.stdout.strip(), device="cpu").stop_ids == (257,)


def test_get_of_an_unknown_name(truing):
    with pytest.raises(ModelError, match="did you mean 'tiny'"):
        truing("get", "tinny")
