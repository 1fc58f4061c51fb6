"""A script of TRL with a vLLM server, and with several processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from truing.faults.fake_vllm.app import FakeServer
from truing.faults.fake_vllm.options import Options
from truing.faults.fake_vllm.threads import ServerThread
from truing.models.builtin import ensure_built
from truing.record import RunReader
from truing.trl import GRPOConfig, GRPOTrainer

pytestmark = pytest.mark.integration

SCRIPT = """
from truing.trl import GRPOConfig, GRPOTrainer
args = GRPOConfig("out", use_cpu=True, max_steps=2, max_completion_length=4, num_generations=2,
                  per_device_train_batch_size=2, disable_tqdm=True)
trainer = GRPOTrainer("tiny", lambda completions, **_: [len(c) / 4 for c in completions], args, ["a", "b"])
trainer.train()
trainer.save_model()
trainer.accelerator.print("done by", trainer.accelerator.num_processes)
"""


def test_a_vllm_server_samples(tmp_path):
    server = ServerThread(Options(model=str(ensure_built("tiny")), name="tiny", max_lora_rank=8), FakeServer)
    try:
        args = GRPOConfig(
            str(tmp_path),
            use_cpu=True,
            use_vllm=True,
            vllm_mode="server",
            vllm_server_base_url=server.url,
            max_steps=2,
            max_completion_length=4,
            num_generations=2,
            per_device_train_batch_size=4,
        )
        trainer = GRPOTrainer(
            "tiny", lambda completions, **_: [len(c) / 4 for c in completions], args, ["a", "b"]
        )
        assert trainer.train().global_step == 2
    finally:
        server.stop()
    assert trainer.recipe.engine.servers == (server.url,)
    assert all(event.kind != "finding" for event in RunReader(trainer.run).events())


def test_torchrun_starts_ranks(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = Path(sys.executable).parent / "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done by 2") == 1  # printed by the first process
    reader = RunReader(tmp_path / "out" / "truing")
    assert "ranks = 2" in reader.recipe()
    assert len(reader.samples("grpo", 1)) == 4  # two answers of each process
    assert (tmp_path / "out" / "model.safetensors").is_file()
