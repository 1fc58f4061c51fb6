"""Models of the hub: what it answers, and why a model does not come."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants
import pytest

from truing.errors import ModelError
from truing.models import hub
from truing.models.resolve import resolve_model

NAME = "someone/model"


@pytest.fixture
def hub_that_answers(monkeypatch, tmp_path):
    """``hub_that_answers(401, "GatedRepo")``: each request gets this status and error code of the hub."""
    servers = []

    def start(status, code=""):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                """Print nothing."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        point_to(f"http://127.0.0.1:{servers[-1].server_port}")

    def point_to(address):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))

    start.at = point_to
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "what", "remedy"),
    [
        (401, "GatedRepo", "gated", "accept its terms at https://huggingface.co/someone/model"),
        (401, "RepoNotFound", "has no such model, or it is private", "HF_TOKEN"),
        (404, "RepoNotFound", "has no such model, or it is private", "check the name"),
        (404, "RevisionNotFound", "has no such revision", "model.revision"),
        (500, "", "cannot be reached", "check the network"),
    ],
)
def test_what_the_hub_answers(hub_that_answers, status, code, what, remedy):
    hub_that_answers(status, code)
    with pytest.raises(ModelError, match=what) as caught:
        resolve_model(NAME)
    assert caught.value.got.startswith(NAME)
    assert remedy in caught.value.remedy


def test_a_hub_that_is_not_there_is_not_a_wrong_name(hub_that_answers):
    hub_that_answers.at("http://127.0.0.1:9")
    with pytest.raises(ModelError, match="cannot be reached, and the model is not in its cache") as caught:
        resolve_model(NAME)
    assert "\n" not in caught.value.got
    assert "path of a local model folder" in caught.value.remedy


def test_without_the_network_a_model_must_be_in_the_cache(hub_that_answers, monkeypatch):
    hub_that_answers.at("http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids to download it"):
        resolve_model(NAME)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (hub.NETWORK_ERRORS[0]("timed out"), "cannot be reached"),
        (ConnectionResetError(104, "reset"), "cannot be reached"),
        (OSError(28, "No space left on device"), "cannot be written"),
    ],
)
def test_what_ends_a_download(monkeypatch, error, what):
    def fail(name, **_):
        raise error

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match=what):
        resolve_model(NAME)


def test_a_name_that_the_hub_does_not_allow():
    with pytest.raises(ModelError, match="not the name of a model on the hub"):
        resolve_model("someone/model--with.git")


def test_a_hub_id_with_a_revision_fetches_no_pickles(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(
        hub, "snapshot_download", lambda name, **how: asked.update(how, name=name) or str(tmp_path)
    )
    assert resolve_model(NAME, "v2") == tmp_path
    assert (asked["name"], asked["revision"]) == (NAME, "v2")
    assert not any("bin" in pattern for pattern in asked["allow_patterns"])
