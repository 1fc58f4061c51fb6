"""`truing prove` enters a real vLLM server of somebody else's, beside its worker extension."""

import tomllib
from contextlib import contextmanager

from conftest import HERE, PYTHON, qwen3
from folders import ROOT

from truing import SyncProof, prove
from truing.engines.vllm.server_process import ServerProcess, free_port, server_variables
from truing.models.load import load


@contextmanager
def server(folder, tmp_path, **variables):
    """Their server: Truing is beside its vLLM, as an installed package declares it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    declared = tmp_path / "truing-0.dist-info"
    declared.mkdir()
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: truing\nVersion: 0\n")
    lines = [f"[{group}]\ntruing = {each['truing']}" for group, each in groups.items() if "vllm" in group]
    (declared / "entry_points.txt").write_text("\n".join(lines))
    port = free_port()
    command = [
        PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(folder),
        "--port",
        str(port),
    ]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager"]
    command += ["--worker-extension-cls", "their_extension.TheirExtension"]
    path = ":".join(map(str, (HERE / "theirs", tmp_path, ROOT / "src")))
    variables = server_variables("cpu", 1) | {"PYTHONPATH": path, "VLLM_CPU_KVCACHE_SPACE": "1"} | variables
    process = ServerProcess(command, variables, f"http://127.0.0.1:{port}", tmp_path / "server.log")
    try:
        process.wait_until_ready(240)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def test_a_server_with_another_extension_is_proven_from_inside(tmp_path):
    """Over Truing's own route: vLLM's development mode is off."""
    qwen3(tmp_path / "served", tied=True)
    qwen3(tmp_path / "other", tied=True)
    other = load(str(tmp_path / "other"), device="cpu")
    other.model.get_submodule("model.layers.1.mlp.up_proj").weight.data.mul_(1.01)
    other.model.save_pretrained(tmp_path / "other")
    with server(tmp_path / "served", tmp_path, VLLM_PLUGINS="truing", VLLM_SERVER_DEV_MODE="0") as url:
        right = prove(url, str(tmp_path / "served"), base=str(tmp_path / "other"))
        wrong = prove(url, str(tmp_path / "other"))
        sync = SyncProof(url, share=0.5)
        synced = [
            sync(load(str(tmp_path / name), device="cpu").model) for name in ("served", "other", "other")
        ]
        outside = prove(url, str(tmp_path / "served"), base=str(tmp_path / "other"), outside=True)
    assert (right.depth, right.said) == ("inside", "served")
    assert (wrong.depth, wrong.said) == ("inside", "layers")
    ((cause, layers),) = wrong.causes.items()
    assert cause.startswith("they are scaled by 0.99")
    assert layers == ["model.layers.1.mlp.up_proj"]
    assert synced[0].said == "served"
    (stale,) = [each for each in synced[1:] if each.wrong]
    assert stale.causes == {"they are those of the first version": ["model.layers.1.mlp.up_proj"]}
    assert (outside.depth, outside.wrong) == ("outside", False)
    assert right.missing == []
    assert "Injected <class 'their_extension.TheirExtension'>" in (tmp_path / "server.log").read_text()
