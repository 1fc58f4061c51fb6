"""Addresses where no Ray answers, and a machine without Ray, are refused before anything is trained."""

import signal
import socket
import sys

import pytest
from command import truing as command
from training_process import write_recipe

from truing.cluster import connection
from truing.cluster.connection import connected
from truing.errors import RecipeError


@pytest.fixture
def listening():
    """The address of a port where something listens that is not Ray, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def refused(address):
    with pytest.raises(RecipeError, match="no Ray cluster answers") as error, connected(address):
        raise AssertionError("it is connected")
    return error.value


def test_an_address_where_nothing_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    outcome = command("train", write_recipe(tmp_path), "--ray", address, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert f"no Ray cluster answers at {address}" in outcome.err
    assert "Connection refused" in outcome.err
    assert not (tmp_path / "run").exists()


def test_an_address_where_something_else_listens(listening, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 4.0)
    assert refused(listening).got == "no answer within 4 s"


@pytest.mark.parametrize("address", ["nowhere.invalid:6379", "no-port", "127.0.0.1:port"])
def test_what_is_no_address(address):
    refused(address)


def test_the_address_of_a_ray_client():
    with pytest.raises(RecipeError, match="not that of a Ray client"), connected("ray://127.0.0.1:10001"):
        raise AssertionError("it is connected")


def test_without_ray_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RecipeError, match="needs the package ray") as error, connected("local"):
        raise AssertionError("it is connected")
    assert error.value.remedy == "pip install truing[ray]"


def test_engines_that_only_ray_places_are_refused_without_it(tmp_path):
    recipe = write_recipe(tmp_path, engine={"kind": "vllm", "count": 2}, trainer={"ranks": 1})
    outcome = command("train", recipe, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "only Ray places engines" in outcome.err
    assert "engine.count = 2, without --ray" in outcome.err


@pytest.mark.integration
def test_the_handler_of_sigterm_is_put_back():
    """Ray leaves its own, and a later run in the process would not end by SIGTERM as it should."""
    before = signal.getsignal(signal.SIGTERM)
    with connected("local"):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
