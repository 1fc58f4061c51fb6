"""Names of arguments that a script may have and the installed API does not."""

from collections.abc import Iterable, Mapping
from typing import Any

from truing.errors import RecipeError
from truing.utils.format import did_you_mean

RETIRED = {
    "max_prompt_length": "TRL removed it: prompts are not cut; leave out rows with long prompts",
    "max_seq_length": "TRL renamed it: max_length",
    "evaluation_strategy": "transformers renamed it: eval_strategy",
    "warmup_ratio": "transformers removed it: set warmup_steps to a share of the steps, such as 0.1",
    "logging_dir": "leave it out: the record is in output_dir/truing, whatever report_to says",
    "overwrite_output_dir": "leave it out: each run has a folder of its own, output_dir/truing-2",
    "save_safetensors": "leave it out: models are saved as safetensors",
    "no_cuda": "transformers renamed it: use_cpu",
    "fp16_opt_level": "leave it out: Truing computes in float32 or bfloat16",
    "half_precision_backend": "leave it out: Truing computes in float32 or bfloat16",
    "group_by_length": "leave it out: micro-batches are filled by tokens",
    "torch_dtype": 'set model_init_kwargs={"dtype": "bfloat16"}',
    "attn_implementation": "leave it out: Truing chooses the attention",
    "dataset_batch_size": "leave it out: Truing prepares rows itself",
    "num_of_sequences": "leave it out: rows are not packed",
    "reward_processing_class": "TRL's name is reward_processing_classes",
    "vllm_device": "TRL removed it: vllm_mode",
    "vllm_guided_decoding_regex": "use tools, whose calls `episode.grammar` can constrain",
    "kl_coef": "TRL renamed it: beta",
    "rloo_k": "TRL renamed it: num_generations",
    "num_ppo_epochs": "TRL renamed it: num_iterations",
    "cliprange": "TRL renamed it: epsilon",
    "response_length": "TRL renamed it: max_completion_length",
    "total_episodes": "TRL replaced it: max_steps or num_train_epochs",
    "tokenizer": "TRL renamed it: processing_class",
    "dataset": "TRL's name is train_dataset",
    "config": "TRL's name is args",
    "policy": "TRL renamed it: model",
    "reward_model": "TRL replaced it: reward_funcs takes a model or its name",
    "value_model": "GRPO and RLOO have no value model; `truing train` has PPO",
    "ref_model": "leave it out: the reference is the model before training, if beta is above 0",
    "ref_policy": "leave it out: the reference is the model before training, if beta is above 0",
    "model_init": "pass the model as `model`",
}
"""Remedies for names that earlier versions of TRL and transformers have, or that users expect."""


def check_names(owner: str, given: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Raise one error for all arguments that a config or trainer does not have."""
    valid = list(valid)
    unknown = [name for name in given if name not in valid]
    if unknown:
        remedies = (
            f"{name}: {RETIRED[name]}" if name in RETIRED else did_you_mean(name, valid) for name in unknown
        )
        raise RecipeError(
            f"{owner} has no argument {', '.join(map(repr, unknown))}",
            got=", ".join(f"{name}={given[name]!r:.60}" for name in unknown),
            expected="an argument of TRL 1.16",
            remedy="; ".join(filter(None, remedies)),
        )
