"""Healthy runs of TRL's trainers on a CPU: options, models and data.

``RUNS`` has the options of each trainer by name; one that is left out has TRL's default, or that of
``COMMON`` and ``SAMPLED``.
"""

import hashlib
import importlib
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import peft
import torch
import transformers

from truing.models.tiny import byte_tokenizer

Options = Mapping[str, Any]

FLOAT32: Options = {"bf16": False, "model_init_kwargs": {"dtype": "float32"}}

COMMON: Options = {
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-3,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "use_cpu": True,
    "disable_tqdm": True,
}

SAMPLED: Options = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 12,
    "beta": 0.0,
}
"""Of trainers that sample."""

GRPO: Mapping[str, Options] = {
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

RLOO: Mapping[str, Options] = {
    "default": {},
    "kl": {"beta": 0.1},
    "two optimizer steps": {"num_iterations": 2, "learning_rate": 1e-2},
    "accumulated": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "parts": {"steps_per_generation": 2, "per_device_train_batch_size": 4},
    "normalized": {"normalize_advantages": True},
    "rewards clipped": {"reward_clip_range": (0.2, 0.8)},
    "cut answers masked": {"mask_truncated_completions": True},
}

SFT: Mapping[str, Options] = {
    "default": {},
    "accumulated": {"gradient_accumulation_steps": 3},
    "everything": {"completion_only_loss": False},
    "assistant": {"assistant_only_loss": True},
    "packed": {"packing": True, "max_length": 64},
    "without padding": {"padding_free": True, "max_length": None},
    "cut": {"max_length": 48},
    "dft": {"loss_type": "dft", "gradient_accumulation_steps": 2},
    "checkpointed": {"gradient_checkpointing": True},
    "noise": {"neftune_noise_alpha": 5},
    "fast": {"learning_rate": 1e-2},
    "decay": {"weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
}

RUNS: Mapping[str, Mapping[str, Options]] = {"GRPO": GRPO, "RLOO": RLOO, "SFT": SFT}

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

WIDE = {"initializer_range": 0.15}
"""Large weights: the forward is as nonlinear, and rounds as much, as that of a trained model."""

TEMPLATE_WITH_TURNS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The tiny model's template, with marks at what the assistant says."""


def of_config(kind: str, **more: Any) -> Callable[[int], Any]:
    """Return a function that builds a model of an architecture with random weights."""

    def built(seed: int) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(kind, **SIZES | more), dtype=torch.float32
            )

    return built


def model_that_ends(seed: int, share: float = 0.1) -> Any:
    """Return a Llama whose tokens end an answer with a probability of some ``share``."""
    model = of_config("llama", **WIDE)(seed)
    ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        mean_H = model.model(ids).last_hidden_state.mean((0, 1))
        logit = math.log(share / (1 - share) * SIZES["vocab_size"])
        model.lm_head.weight[SIZES["eos_token_id"]] = logit * mean_H / mean_H.square().sum()
    return model


def tokenizer_that_marks_turns() -> transformers.PreTrainedTokenizerFast:
    """Return the tiny model's tokenizer with a template for ``assistant_only_loss``."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE_WITH_TURNS
    return tokenizer


def lora() -> peft.LoraConfig:
    """Return an adapter on all linear layers."""
    return peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


def chance(completions: list[Any], **_: Any) -> list[float]:
    """Return rewards by the answers' digests, so that groups have a signal."""
    return [int(hashlib.md5(str(each).encode()).hexdigest(), 16) % 5 / 4 for each in completions]


def trainer_of(
    kind: str, model: Path, options: Options, *, seed: int = 0, adapter: peft.LoraConfig | None = None
) -> Any:
    """Return a trainer of TRL.

    Args:
        kind: GRPO, RLOO or SFT.
        model: folder of the model and its tokenizer.
        options: arguments of the trainer's config; ``output_dir`` and ``max_steps`` are among them.
        seed: of the run and of its data.
        adapter: to train; all weights without one.
    """
    trl: Any = importlib.import_module("trl")
    own = {**COMMON, "seed": seed, **({} if kind == "SFT" else SAMPLED), **options}
    more = {} if kind == "SFT" else {"reward_funcs": [chance]}
    return getattr(trl, f"{kind}Trainer")(
        model=str(model),
        args=getattr(trl, f"{kind}Config")(**own),
        train_dataset=datasets.Dataset.from_list(
            [_row(kind, own.get("assistant_only_loss", False), number) for number in _numbers(seed)]
        ),
        peft_config=adapter,
        **more,
    )


def _numbers(seed: int) -> list[int]:
    """Return 32 numbers of one to three digits."""
    chance_of = random.Random(seed)
    return [chance_of.randrange(10 ** chance_of.randrange(1, 4)) for _ in range(32)]


def _row(kind: str, as_messages: bool, number: int) -> dict[str, Any]:
    """Return a question; for SFT also an answer of its own length, in a column or in the conversation."""
    prompt = [{"role": "user", "content": f"what is {number} and {number}?"}]
    if kind != "SFT":
        return {"prompt": prompt}
    answer = [{"role": "assistant", "content": f"it is {'x' * (number % 5)}{2 * number}"}]
    return {"messages": prompt + answer} if as_messages else {"prompt": prompt, "completion": answer}
