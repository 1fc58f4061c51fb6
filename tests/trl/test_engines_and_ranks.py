"""A script of TRL with a vLLM server, and with several processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.threads import ServerThread
from truing.models.builtin import ensure_built
from truing.record import RunReader
from truing.trl import GRPOConfig, GRPOTrainer

pytestmark = pytest.mark.integration

SCRIPT = """
from transformers import AutoModelForCausalLM, AutoTokenizer

from truing.models.builtin import ensure_built
from truing.trl import GRPOConfig, GRPOTrainer

args = GRPOConfig("out", use_cpu=True, max_steps=2, max_completion_length=4, num_generations=2,
                  per_device_train_batch_size=2, learning_rate=1e-2, disable_tqdm=True)
rows, others = [{"prompt": "a"}, {"prompt": "b"}], [{"prompt": "c"}, {"prompt": "d"}]
model = AutoModelForCausalLM.from_pretrained(ensure_built("tiny"))
tokenizer = AutoTokenizer.from_pretrained(ensure_built("tiny"))
trainer = GRPOTrainer(model, lambda completions, **_: [len(c) / 4 for c in completions], args, rows,
                      eval_dataset=others, processing_class=tokenizer)
before = trainer.evaluate()
trainer.train()
after = trainer.evaluate()
trainer.save_model()
trainer.create_model_card()
trainer.save_metrics("eval", after)
trainer.save_state()
weights = sum(float(part.double().abs().sum()) for part in model.state_dict().values())
print(f"weights of {trainer.accelerator.process_index}: {weights}, rewards {before} {after}")
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


def test_a_script_of_several_processes_calls_each_method_on_all(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = Path(sys.executable).parent / "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done by 2") == 1  # printed by the first process
    reader = RunReader(tmp_path / "out" / "truing")
    assert "ranks = 2" in reader.recipe()
    assert len(reader.find_table("grpo", 1).samples) == 4  # two answers of each process
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    weights = sum(float(part.double().abs().sum()) for part in written.values())
    told = dict(re.findall(r"weights of (\d): (\S+), rewards", done.stdout))
    assert {rank: float(sum_) for rank, sum_ in told.items()} == {"0": weights, "1": weights}
    assert len(set(re.findall(r"rewards (.*)", done.stdout))) == 1
    assert (tmp_path / "out" / "README.md").is_file()
    assert not (tmp_path / "out" / ".export").exists()
