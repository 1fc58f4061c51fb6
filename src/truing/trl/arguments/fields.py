"""What becomes of each argument of TRL's configs: a recipe key, nothing, or a refusal with its reason."""

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["translated", "no effect", "refused"]


@dataclass(frozen=True)
class FieldAnswer:
    """What becomes of an argument.

    ``text`` is the recipe key of a translated one and the reason of the others. A refused argument is
    accepted if it has its default, or one of ``accepted``.
    """

    kind: Kind
    text: str
    accepted: tuple[Any, ...] = ()


TRANSLATED = {
    "output_dir": "folder of the run (`output_dir/truing`, `truing-2`, …), of `save_model()` and the card",
    "per_device_train_batch_size": "`prompts_per_step` × `group_size` (SFT: `batch_size`), times"
    " `gradient_accumulation_steps`",
    "gradient_accumulation_steps": "counts the rollouts of an optimizer step; Truing makes micro-batches"
    " itself",
    "max_steps": "`steps`; TRL counts optimizer steps, so it is divided by those of a generation batch",
    "num_train_epochs": "`steps`, from the number of rows, if `max_steps` is not given",
    "learning_rate": "`learning_rate`",
    "lr_scheduler_type": "`optimizer.schedule`: linear, cosine, constant, constant_with_warmup",
    "warmup_steps": "`optimizer.warmup_steps`; a number below 1 is a share of the steps. TRL's first"
    " optimizer step"
    " has rate 0, Truing's 1/warmup_steps of the peak",
    "optim": "AdamW in float32: `adamw_torch` and `adamw_torch_fused`",
    "weight_decay": "`optimizer.weight_decay`; TRL leaves out biases and norms, Truing decays all",
    "adam_beta1": "`optimizer.beta1`",
    "adam_beta2": "`optimizer.beta2`",
    "adam_epsilon": "`optimizer.eps`; RLOO: divided by `max_completion_length`, as its loss is",
    "max_grad_norm": "`optimizer.max_grad_norm`; RLOO: divided by `max_completion_length`; 0 clips nothing",
    "bf16": "`model.dtype`; not given, it is `bfloat16` on CUDA and `float32` on a CPU",
    "use_cpu": '`model.device = "cpu"`',
    "seed": "`seed`; the random numbers are others than TRL's",
    "logging_strategy": "when `state.log_history` gets a line, and `on_log` is called",
    "logging_steps": "steps that such a line averages; the record has every step",
    "logging_first_step": "whether the first step has a line of its own",
    "report_to": "`track.to`: wandb, trackio, tensorboard, mlflow",
    "run_name": "`name`",
    "project": "`track.project`",
    "eval_strategy": "with `eval_dataset`: `steps` and `epoch` evaluate during and after the training",
    "eval_steps": "`eval.every`, SFT: `sft.eval_every`; `logging_steps` if not given",
    "eval_on_start": "`eval.base`",
    "metric_for_best_model": "`state.best_metric`, which `EarlyStoppingCallback` reads",
    "greater_is_better": "whether the best is the greatest; not given, of all metrics but a loss",
    "save_strategy": "`checkpoint_every`; the last step is always saved",
    "save_steps": "`checkpoint_every`; a number below 1 is a share of the steps, and TRL's default of 500 is"
    " `auto`: a kill costs at most some minutes",
    "save_total_limit": "`checkpoint_limit`; not given, the newest two, the best and three others are kept",
    "load_best_model_at_end": "after `train()` the model is that of the best checkpoint, chosen by the reward"
    " (SFT: the loss) on one half of `eval_dataset`; on the other half the run says how good it is",
    "push_to_hub": "pushes the saved model and its card after `train()`",
    "hub_model_id": "repository of `push_to_hub`",
    "hub_token": "token of `push_to_hub`",
    "hub_private_repo": "whether a new repository is private",
    "hub_revision": "branch of `push_to_hub`",
    "disable_tqdm": "whether progress is shown",
    "resume_from_checkpoint": "as the argument of `train()`: `True` continues the newest run in `output_dir`,"
    " a path that run, or that checkpoint of a run, such as `checkpoint-N` in `output_dir`",
    "model_init_kwargs": "`model.revision` and `model.dtype`; `attn_implementation`, `device_map` and"
    " `use_cache` have no effect; others are refused",
    "num_generations": "`group_size`",
    "num_generations_eval": "`eval.samples`; `num_generations` if not given",
    "max_completion_length": "`sampling.max_new_tokens`; with tools it is per turn, in TRL of all turns",
    "generation_batch_size": "`prompts_per_step` × `group_size`",
    "steps_per_generation": "with `gradient_accumulation_steps`: `minibatches`",
    "temperature": "`sampling.temperature`",
    "top_p": "`sampling.top_p`; log-probabilities are of the cut distribution, in TRL of the full",
    "top_k": "`sampling.top_k`; as `top_p`",
    "min_p": "`sampling.min_p`; as `top_p`",
    "generation_kwargs": "keys of `[sampling]`, such as `min_new_tokens`; others are refused",
    "chat_template_kwargs": "`chat.template_kwargs`, but what the template does not read",
    "beta": "`kl.coef`; GRPO: in the loss, RLOO: in the reward (k1)",
    "use_bias_correction_kl": "`kl.estimator`: `k2` if true, whose gradient is that of TRL's corrected k3"
    " while the ratio is 1; else `k3`",
    "num_iterations": "`inner_epochs`",
    "epsilon": "`clip_low`, and `clip_high` if `epsilon_high` is not given",
    "epsilon_high": "`clip_high`; with `cispo` `max_weight`",
    "importance_sampling_level": '`sequence` with `loss_type="grpo"`: the objective `gspo`',
    "reward_weights": "weights of `reward_funcs`",
    "scale_rewards": "`grpo.advantage_scale`",
    "loss_type": "`grpo.objective`: grpo, dapo, dr_grpo, cispo, and bnpo without gradient accumulation;"
    " SFT: nll and chunked_nll",
    "mask_truncated_completions": '`gates.truncated = "mask"`',
    "sync_ref_model": "`reference.sync_every` and `reference.keep`",
    "ref_model_mixup_alpha": "`reference.keep` = 1 − alpha",
    "ref_model_sync_steps": "`reference.sync_every`",
    "entropy_coef": "`entropy.coef`, with `dapo` and `cispo`",
    "max_tool_calling_iterations": "`episode.max_turns` − 1; not given, `max_completion_length` turns",
    "use_vllm": '`engine.kind = "vllm"`',
    "vllm_mode": "`colocate` starts a server, `server` uses a running one (`truing explain vllm`)",
    "vllm_model_impl": "`engine.arguments.model-impl`",
    "vllm_enable_sleep_mode": "`engine.sleep`",
    "vllm_server_base_url": "`engine.servers`",
    "vllm_server_host": "`engine.servers`",
    "vllm_server_port": "`engine.servers`",
    "vllm_server_timeout": "`engine.timeout`",
    "vllm_gpu_memory_utilization": "`engine.arguments.gpu-memory-utilization`",
    "vllm_max_model_length": "`engine.arguments.max-model-len`",
    "vllm_tensor_parallel_size": "`engine.tensor_parallel`",
    "vllm_importance_sampling_correction": "with `use_vllm`: whether there is a `[correction]`",
    "vllm_importance_sampling_mode": "`correction.method`",
    "vllm_importance_sampling_clip_max": "`correction.high`",
    "vllm_importance_sampling_clip_min": "`correction.low`",
    "chat_template_path": "`model.chat_template`: a Jinja file",
    "dataset_text_field": "the column of plain text, if there is neither `prompt` nor `messages`",
    "max_length": "rows that are trained whole are cut, as in TRL; of others, one with more tokens is refused"
    " by its index, where TRL cuts it",
    "truncation_mode": "which end of such rows is kept",
    "completion_only_loss": "the loss is on completions; `False`: on prompts too",
    "assistant_only_loss": "the loss is on the assistant's turns of messages; `False`: on all tokens",
}
"""Arguments with an equivalent; the text is shown in docs/trl.md."""

_NO_EFFECT = {
    "micro-batches fit the memory by themselves, and the gradient does not depend on the split": """
        gradient_checkpointing gradient_checkpointing_kwargs activation_checkpointing activation_offloading
        activation_checkpointing_kwargs auto_find_batch_size torch_empty_cache_steps
        average_tokens_across_devices per_device_eval_batch_size eval_accumulation_steps pad_to_multiple_of
        padding_free ds3_gather_for_generation""",
    "it changes speed, not numbers": """
        tf32 torch_compile torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config
        use_cache cache_implementation dataloader_num_workers dataloader_pin_memory
        dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context
        dataloader_in_order dataset_num_proc use_transformers_continuous_batching
        transformers_continuous_batching_config use_transformers_paged bf16_full_eval fp16_full_eval
        eval_do_concat_batches eval_use_gather_object""",
    "ranks exchange by Truing's own settings (`[trainer]`)": """
        ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend
        ddp_timeout local_rank vllm_group_port""",
    "the run directory has every completion, metric and memory figure": """
        log_completions log_multimodal num_completions_to_print log_unique_prompts skip_memory_metrics
        include_num_input_tokens_seen logging_nan_inf_filter log_level log_level_replica log_on_each_node
        debug""",
    "a checkpoint has all that exact resume needs, once for all processes": """
        save_only_model save_on_each_node enable_jit_checkpoint full_determinism""",
    "the model is pushed once, at the end of the training": "hub_strategy hub_always_push",
    "TRL's trainer does not read it either": "do_train do_eval do_predict prediction_loss_only",
    "reward functions get all columns": "remove_unused_columns label_names",
    "tasks are drawn in a new order each epoch, by `seed`": "dataloader_drop_last",
    "Truing trains without the model's own dropout": "disable_dropout",
    "Truing has no length sampler": "length_column_name",
    "it belongs to an argument that is refused unless it has its default": """
        optim_args lr_scheduler_kwargs packing_strategy sapo_temperature_neg sapo_temperature_pos vespo_k_pos
        vespo_lambda_pos vespo_k_neg vespo_lambda_neg entropy_coef_min entropy_coef_max entropy_coef_delta
        entropy_target""",
    "padding is never trained": "pad_token",
    "the dashboard of Trackio is set by its own environment variables": """
        trackio_space_id trackio_bucket_id trackio_static_space_id""",
    "`eval_dataset` is not packed": "eval_packing",
}

_REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "optim_target_modules": ("Truing's optimizer is AdamW over all trained weights", ()),
    "label_smoothing_factor": ("the loss is the exact log-probability", ()),
    "fp16": ("Truing computes in float32 or bfloat16: set `bf16=True`", ()),
    "neftune_noise_alpha": ("noise on embeddings would move the ratio off 1", ()),
    "eval_delay": ("evaluations are at step 0, every `eval_steps`, and at the end", ()),
    "include_for_metrics": (
        "Truing has no compute_metrics, but those of `truing explain metrics`",
        (),
    ),
    "batch_eval_metrics": (
        "Truing has no compute_metrics, but those of `truing explain metrics`",
        (),
    ),
    "ignore_data_skip": ("a resumed run continues where it ended, bit for bit", ()),
    "restore_callback_states_from_checkpoint": ("callbacks are not saved: a checkpoint holds the run", ()),
    "data_seed": ("the order of tasks derives from `seed`", ()),
    "accelerator_config": ("Truing does not use Accelerate: `truing train --ranks` starts processes", ()),
    "parallelism_config": ("Truing does not use Accelerate: `truing train --ranks` starts processes", ()),
    "fsdp": ("Truing shards by itself over `trainer.ranks` (`truing explain scale`)", (False, "", [])),
    "fsdp_config": ("Truing shards by itself over `trainer.ranks` (`truing explain scale`)", ({},)),
    "deepspeed": ("Truing shards by itself over `trainer.ranks` (`truing explain scale`)", ()),
    "train_sampling_strategy": ("tasks are drawn in a new order each epoch", ()),
    "shuffle_dataset": ("tasks are drawn in a new order each epoch, by `seed`", (True,)),
    "trust_remote_code": ("Truing does not run code of a model folder (`truing explain security`)", ()),
    "router_aux_loss_coef": ("Truing has no auxiliary loss of routers", (0, 0.0)),
    "cast_lm_head_to_fp32": ("set `bf16=False`: logits are computed in `model.dtype`", ()),
    "repetition_penalty": (
        "TRL penalizes tokens of the prompt too, Truing those of the turn: set"
        " `sampling.repetition_penalty` in a recipe",
        (),
    ),
    "vllm_structured_outputs_regex": ("use tools, whose calls `episode.grammar` can constrain", ()),
    "vllm_importance_sampling_cap": ("TRL replaced it: set `vllm_importance_sampling_clip_max`", ()),
    "delta": ("Truing's clip has one bound per sign of the advantage; `gates.max_ratio` drops tokens", ()),
    "multi_objective_aggregation": (
        "rewards are summed, then normalized: a sum of normalized rewards has no"
        " reward that a record could prove",
        (),
    ),
    "top_entropy_quantile": ("Truing trains all sampled tokens", ()),
    "use_adaptive_entropy": ("Truing adapts by another rule: `entropy.target` in a recipe", ()),
    "off_policy_mask_threshold": ("Truing has `[correction]` and `gates`", ()),
    "log_completions_hub_repo": ("the run directory has every completion", ()),
    "normalize_advantages": ("RLOO's advantage is the reward less the mean of the others", ()),
    "reward_clip_range": ("a clipped reward is not the sum of its parts: clip in the reward function", ()),
    "dataset_kwargs": ("Truing prepares rows itself", ({},)),
    "eos_token": ("the chat template writes the end of a turn: set `chat_template_path`", ()),
    "packing": ("a batch counts demonstrations; Truing computes shared prefixes once instead", ()),
}


def _table() -> dict[str, FieldAnswer]:
    """Return the answer for each argument."""
    table = {name: FieldAnswer("translated", text) for name, text in TRANSLATED.items()}
    for reason, names in _NO_EFFECT.items():
        table |= {name: FieldAnswer("no effect", reason) for name in names.split()}
    return table | {
        name: FieldAnswer("refused", reason, accepted) for name, (reason, accepted) in _REFUSED.items()
    }


STAGES = ("grpo", "rloo", "sft")
"""Sections whose keys the table names without them."""

FIELDS = _table()
"""The answer for each argument of TRL's configs, by name."""


def arguments_of(key: str) -> list[str]:
    """Return the arguments that become a recipe key, such as ``grpo.group_size``."""
    section, _, last = key.rpartition(".")
    marks = (f"`{key}`", *([f"`{last}`"] if section in STAGES else []))
    return [name for name, text in TRANSLATED.items() if text.startswith(marks)]
