"""False alarms of the doctor's audit on healthy TRL runs.

    python -m dev.measure.trl_false_alarms [--runs 40] [--seed 0] [--steps 4] [--only TEXT] [--json FILE]

Each run is a small random model (``MODELS``) under a trainer of TRL with one way to compute (``PRECISIONS``),
one set of options (``GRPO``, ``SFT``), all weights or an adapter, and its own seed. A healthy
trainer must end with no PROVEN and no EVIDENCE, and at most one run in twenty with a SUSPECT.
Needs ``pip install -e .[bench]``; a run takes some three seconds on a core.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import peft
import torch
import transformers
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from truing.doctor.verdict import FINDING_VERDICTS
from truing.integrations.trl import audit
from truing.models.tiny import byte_tokenizer, tiny_model

PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {"bf16": False, "model_init_kwargs": {"dtype": "float32"}},
    "autocast bf16": {"bf16": True},  # TRL's default: weights in float32
    "bf16 weights": {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}},
    "pure bf16": {"bf16": False, "model_init_kwargs": {"dtype": "bfloat16"}},
    "pure fp16": {"bf16": False, "model_init_kwargs": {"dtype": "float16"}, "adam_epsilon": 1e-4},
}

GRPO: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "kl": {"beta": 0.1, "loss_type": "grpo"},
    "kl weighed": {"beta": 0.05, "use_bias_correction_kl": True, "num_iterations": 2},
    "accumulated": {"gradient_accumulation_steps": 2},
    "small micro-batches": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "bnpo": {"loss_type": "bnpo", "gradient_accumulation_steps": 2},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {"importance_sampling_level": "sequence", "loss_type": "grpo", "num_iterations": 2},
    "luspo": {"importance_sampling_level": "sequence", "loss_type": "luspo"},
    "sapo": {"loss_type": "sapo", "num_iterations": 2},
    "vespo": {"loss_type": "vespo"},
    "two optimizer steps": {"num_iterations": 2, "learning_rate": 1e-2},
    "four optimizer steps": {"num_iterations": 4, "learning_rate": 1e-3, "epsilon": 0.05},
    "parts": {"steps_per_generation": 2, "per_device_train_batch_size": 4},
    "across generations": {"gradient_accumulation_steps": 2, "steps_per_generation": 3, "loss_type": "grpo"},
    "scaled by batch": {"scale_rewards": "batch"},
    "checkpointed": {"gradient_checkpointing": True},
    "temperature": {"temperature": 0.7},
    "entropy": {"entropy_coef": 0.01},
    "cut answers masked": {"mask_truncated_completions": True},
    "quarter of the tokens": {"top_entropy_quantile": 0.25},
    "two-sided clip": {"delta": 2.0, "num_iterations": 2},
    "reference synced": {"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 2},
    "head in float32": {"cast_lm_head_to_fp32": True},
    "long answers": {"max_completion_length": 48},
    "fast": {"learning_rate": 1e-2},
    "slow": {"learning_rate": 1e-6},
    "decay": {"weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
    "not clipped": {"max_grad_norm": 0.0},
    "clipped hard": {"max_grad_norm": 0.01},
}

SFT: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "accumulated": {"gradient_accumulation_steps": 3},
    "everything": {"completion_only_loss": False},
    "packed": {"packing": True, "max_length": 64},
    "without padding": {"padding_free": True, "max_length": None},
    "cut": {"max_length": 48},
    "dft": {"loss_type": "dft", "gradient_accumulation_steps": 2},
    "checkpointed": {"gradient_checkpointing": True},
    "noise": {"neftune_noise_alpha": 5},
    "fast": {"learning_rate": 1e-2},
    "decay": {"weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
}

NOT_BELOW_AN_ADAPTER = ("head in float32", "reference synced")
"""Options that TRL 1.16 does not support with an adapter."""

SIZES = {
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": None,
    "eos_token_id": 257,
    "pad_token_id": 258,
}


def of_config(kind: str, **more: Any) -> Callable[[int], Any]:
    """Return a function that builds a model of an architecture with random weights."""

    def built(seed: int) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(kind, **SIZES | more), dtype=torch.float32
            )

    return built


WIDE = {"initializer_range": 0.15}
"""Large weights: the forward is as nonlinear, and rounds as much, as that of a trained model."""

MODELS: Mapping[str, Callable[[int], Any]] = {
    "tiny": tiny_model,
    "llama": of_config("llama", **WIDE),
    "qwen3": of_config("qwen3", tie_word_embeddings=True, **WIDE),
    "qwen2": of_config("qwen2"),
    "gemma2": of_config("gemma2", sliding_window=16, query_pre_attn_scalar=16, **WIDE),
    "mixtral": of_config("mixtral", num_local_experts=4, **WIDE),
    "dropout": of_config("llama", attention_dropout=0.1, **WIDE),
}
"""None learns positions: TRL's GRPO counts pads on the left among them, and SMP005 is PROVEN of GPT-2."""


@dataclass(frozen=True)
class Case:
    """One run."""

    trainer: str
    model: str
    precision: str
    options: str
    adapter: bool
    seed: int

    def __str__(self) -> str:
        what = "LoRA" if self.adapter else "all weights"
        return f"{self.trainer}, {self.options}, {self.precision}, {what}, {self.model}, seed {self.seed}"


def every() -> Iterator[Case]:
    """Yield all combinations of trainer, options, precision and adapter; models alternate."""
    models = itertools.cycle(MODELS)
    for trainer, options in (("GRPO", GRPO), ("SFT", SFT)):
        for name, precision, adapter in itertools.product(options, PRECISIONS, (False, True)):
            if not (adapter and name in NOT_BELOW_AN_ADAPTER):
                yield Case(trainer, next(models), precision, name, adapter, 0)


def chance(completions: list[Any], **_: Any) -> list[float | None]:
    """Return rewards by the answers' digests, so that groups have a signal."""
    return [int(hashlib.md5(str(each).encode()).hexdigest(), 16) % 5 / 4 for each in completions]


def trainer_of(case: Case, model: Path, out: str, steps: int) -> Any:
    """Return the TRL trainer of a case."""
    own: dict[str, Any] = {
        "output_dir": out,
        "max_steps": steps,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 8 if case.trainer == "GRPO" else 4,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": case.seed,
    }
    own |= PRECISIONS[case.precision]
    adapter = (
        peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if case.adapter else None
    )
    chance_of = random.Random(case.seed)
    numbers = [chance_of.randrange(10 ** chance_of.randrange(1, 4)) for _ in range(32)]
    prompts = [[{"role": "user", "content": f"what is {i} and {i}?"}] for i in numbers]
    if case.trainer == "GRPO":
        own |= {"num_generations": 4, "max_completion_length": 12, "beta": 0.0, **GRPO[case.options]}
        rows = [{"prompt": prompt} for prompt in prompts]
        return GRPOTrainer(
            model=str(model),
            args=GRPOConfig(**own),
            reward_funcs=[chance],
            train_dataset=datasets.Dataset.from_list(rows),
            peft_config=adapter,
        )
    rows = [
        {"prompt": prompt, "completion": [{"role": "assistant", "content": f"it is {'x' * (i % 5)}{2 * i}"}]}
        for prompt, i in zip(prompts, numbers, strict=True)
    ]
    return SFTTrainer(
        model=str(model),
        args=SFTConfig(**{**own, **SFT[case.options]}),
        train_dataset=datasets.Dataset.from_list(rows),
        peft_config=adapter,
    )


def found_in(case: Case, steps: int) -> tuple[dict[str, str], Any]:
    """Return each rule with a finding, with its verdict; and the audit."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        model = Path(folder) / "model"
        MODELS[case.model](case.seed).save_pretrained(model)
        byte_tokenizer().save_pretrained(model)
        torch.manual_seed(case.seed)
        trainer = trainer_of(case, model, f"{folder}/out", steps)
        run_audit = audit(trainer)
        trainer.train()
    results = run_audit.diagnosis.results()
    return {each.code: str(each.verdict) for each in results if each.verdict in FINDING_VERDICTS}, run_audit


def main() -> None:
    """Run the cases, and count verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="sampled cases; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of the draw, and of the first run")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--json", type=Path, default=None, help="a line per run, for later")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    cases = [case for case in every() if args.only in str(case)]
    if args.runs:
        cases = random.Random(args.seed).sample(cases, min(args.runs, len(cases)))
    verdicts: Counter[str] = Counter()
    for number, case in enumerate(cases):
        seeded = replace(case, seed=args.seed + number)
        found, run_audit = found_in(seeded, args.steps)
        verdicts.update(set(found.values()))
        print(f"{seeded}: {found or 'silent'}", flush=True)
        if args.json is not None:
            facts = [past.facts for past in run_audit.history.past]
            kept = [
                {name: each.get(name) for name in ("plain", "row_gradients", "audit", "replay")}
                for each in facts
            ]
            with args.json.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"case": str(seeded), "found": found, "facts": kept}, default=str) + "\n"
                )
    counts = ", ".join(f"{verdict} in {count}" for verdict, count in sorted(verdicts.items()))
    print(f"{len(cases)} healthy runs: {counts or 'silent'}")


if __name__ == "__main__":
    main()
