"""How Truing comes into a vLLM that another program starts: its plugin, its route, and an ``LLM``."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from types import ModuleType

import pytest
from command import truing
from inside_engine import Engine, Llm, write_versions
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.threads import ServerThread
from dev.faults.fake_vllm.worker import FakeWorker
from truing.engines.served.endpoint import Endpoint, PluginMissingError
from truing.engines.served.offline_engine import OfflineEngine
from truing.engines.served.prove import prove
from truing.engines.vllm.worker.truing_vllm_plugin import ROUTE, Routes, call, install
from truing.errors import EngineError
from truing.utils.http_request import Answer


@pytest.fixture(scope="module")
def versions(_tiny, tmp_path_factory):
    """The base, the version before, the newest one, and adapters of the base: models and folders."""
    return write_versions(tmp_path_factory.mktemp("versions"), _tiny)


@contextmanager
def served(folder, monkeypatch, *, plugin):
    if plugin:
        monkeypatch.setattr(FakeWorker, "truing_call", call, raising=False)
    server = ServerThread(Options(model=folder, name="policy"))
    try:
        yield server.url
    finally:
        server.stop()


def test_a_server_in_development_mode_is_entered(versions, monkeypatch):
    _, folders = versions
    with served(folders["before"], monkeypatch, plugin=True) as url:
        arguments = ("prove", url, "--base", folders["base"], "--before", folders["before"], "--weights")
        outcome = truing(*arguments, folders["newest"])
        facts = json.loads(truing(*arguments, folders["before"], "--json").out, parse_constant=pytest.fail)
    assert outcome.code == 1
    assert "policy, from inside: WRONG: it holds the version before" in outcome.out
    assert "not looked at: what it computes with these weights" in outcome.out
    assert (facts["depth"], facts["said"]) == ("inside", "served")
    assert facts["shares"]["the base"]["of_change"] == pytest.approx(1, abs=1e-4)


def test_an_llm_is_entered(versions):
    models, folders = versions
    engine = Engine(folders["base"])
    engine.load(models["newest"])
    found = prove(Llm(engine), str(folders["newest"]), base=str(folders["base"]))
    assert (found.depth, found.said, found.model) == ("inside", "served", "policy")


def test_an_engine_without_the_plugin_is_not_entered(versions):
    llm = Llm(Engine(versions[1]["base"]), plugin=False)
    with pytest.raises(PluginMissingError, match="it must name truing"):
        OfflineEngine(llm).call_workers("truing_hello")


def test_the_route_of_a_server_calls_its_workers(versions):
    """As vLLM adds it: the routes first, and the engine when it has started."""

    class Client:
        async def collective_rpc(self, method, kwargs):
            assert method == "truing_call"
            return Engine(versions[1]["base"]).call_workers(kwargs["method"], **kwargs["arguments"])

    app, routes = Starlette(), Routes()
    routes.attach_router(app)
    asyncio.run(routes.init_state(Client(), app.state, None))
    answer = TestClient(app).post(ROUTE, json={"method": "truing_hello", "arguments": {}})
    assert answer.json()["results"][0]["dtype"] == "float32"


def test_installing_gives_workers_of_any_class_one_method(monkeypatch):
    module = ModuleType("vllm.v1.worker.worker_base")
    module.WorkerBase = type("WorkerBase", (), {})
    for name in ("vllm", "vllm.v1", "vllm.v1.worker", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    install()
    install()  # vLLM may call it again
    assert [name for name in vars(module.WorkerBase) if "truing" in name] == ["truing_call"]


def test_the_plugin_imports_nothing_heavy():
    code = "import sys, truing.engines.vllm.worker.truing_vllm_plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "torch" in loaded
    assert not {"transformers", "peft", "pydantic", "vllm"} & {*loaded}


def test_what_is_no_engine_is_refused(versions):
    with pytest.raises(EngineError, match="this engine cannot be proven"):
        prove(object(), str(versions[1]["base"]))


def test_a_call_that_writes_is_refused(versions):
    with pytest.raises(ValueError, match="no call of Truing's"):
        call(Engine(versions[1]["base"]).workers[0], "truing_refresh_packed", {})


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_a_server_that_refuses_calls_is_not_entered(status, monkeypatch):
    answer = Answer(status, b"{}", "application/json")
    monkeypatch.setattr(Endpoint, "_request", lambda *args, **kwargs: answer)
    with pytest.raises(PluginMissingError, match=f"status {status}"):
        Endpoint("http://127.0.0.1:9").call_workers("truing_hello")
