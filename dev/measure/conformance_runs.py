"""The runs of ``conformance.py``: every loss and correction of TRL's trainers, on two architectures."""

from collections.abc import Iterator
from typing import NamedTuple

from dev.measure.trl_runs import RUNS, WIDE, Options, model_that_ends, of_config

LOSSES = {
    "GRPO": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "SFT": ("nll", "dft", "chunked_nll"),
}
"""Every ``loss_type`` of the measured releases."""

TWICE: Options = {"num_iterations": 2, "learning_rate": 1e-2}
"""The second pass over a generation has ratios far from 1."""

SEQUENCE: Options = {"importance_sampling_level": "sequence"}

OF_EACH_LOSS: tuple[Options, ...] = (
    {},
    TWICE,
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    {"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 2},
    {"beta": 0.1},
    SEQUENCE | TWICE,
)

CORRECTIONS: tuple[Options, ...] = (
    {"epsilon_high": 0.5} | TWICE,
    {"delta": 2.0} | TWICE,
    {"delta": 1.1} | TWICE,
    {"top_entropy_quantile": 0.25},
    {"top_entropy_quantile": 0.25, "entropy_coef": 0.01},
    {"use_bias_correction_kl": True, "beta": 0.1} | TWICE,
    {"use_bias_correction_kl": True, "beta": 0.1} | SEQUENCE | TWICE,
    {"off_policy_mask_threshold": 0.05} | TWICE,
    {"mask_truncated_completions": True},
    {"mask_truncated_completions": True, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    {"scale_rewards": "batch"},
    {"scale_rewards": "none"},
    {"multi_objective_aggregation": "normalize_then_sum"},
    {"entropy_coef": 0.01},
    {"temperature": 0.7},
    {"top_k": 20},
    {"sync_ref_model": True, "ref_model_sync_steps": 2, "beta": 0.1},
    {"gradient_accumulation_steps": 2, "steps_per_generation": 3, "loss_type": "grpo"},
    {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
    {"cast_lm_head_to_fp32": True},
    {"gradient_checkpointing": True},
    {"max_grad_norm": 0.0},
    {"weight_decay": 0.1, "lr_scheduler_type": "cosine", "warmup_steps": 2},
)


class Run(NamedTuple):
    """One run: a trainer, its options, and what it trains."""

    trainer: str
    options: Options
    adapter: bool = False
    model: str = "llama"

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.options.items()]
        told += ["LoRA"] if self.adapter else []
        told += [] if self.model == "llama" else [self.model]
        return f"{self.trainer}: {', '.join(told) or 'defaults'}"


NO_DROPOUT = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0.0)

MODELS = {"llama": model_that_ends, "GPT-2": of_config("gpt2", n_layer=3, n_head=4, **NO_DROPOUT, **WIDE)}
"""GPT-2 learns an embedding of each position."""


def runs() -> Iterator[Run]:
    """Yield every run."""
    for loss in LOSSES["GRPO"]:
        for changes in OF_EACH_LOSS:
            yield Run("GRPO", {"loss_type": loss, **changes})
    for changes in CORRECTIONS:
        yield Run("GRPO", changes)
    for options in RUNS["RLOO"].values():
        yield Run("RLOO", options)
    for options in (*RUNS["SFT"].values(), {"loss_type": "chunked_nll"}):
        yield Run("SFT", options)
    for trainer in RUNS:
        yield Run(trainer, {}, adapter=True)
        yield Run(trainer, {}, model="GPT-2")
    yield Run("GRPO", {"beta": 0.1, **TWICE}, adapter=True)
    yield Run("RLOO", {"beta": 0.1}, adapter=True)
    yield Run("SFT", {"packing": True, "max_length": 64}, adapter=True)
