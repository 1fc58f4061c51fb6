"""TRL's arguments that all trainers share, as tables of a recipe."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from truing.trl.arguments.batches import Batches, learning_schedule
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.problems import Problems

Table = dict[str, Any]

ADAMW = ("adamw_torch", "adamw_torch_fused")
STRATEGIES = ("no", "steps", "epoch")
TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow")
NO_CLIPPING = 1e30
"""A gradient norm that no optimizer step reaches."""

CORRECTIONS = {
    "token_truncate": "truncate",
    "token_mask": "mask",
    "sequence_truncate": "sequence_truncate",
    "sequence_mask": "sequence_mask",
}
"""Values of ``vllm_importance_sampling_mode``."""

NO_LOWER_LIMIT = 1e-30
"""``correction.low`` where TRL has no smallest ratio."""

LONGEST_REPLY = 10**9
"""Characters: TRL does not cut what a tool returns."""

TOOL_TIMEOUT = 600.0
"""Seconds for a call of a tool; TRL waits without limit."""

SAMPLING = (
    "top_k",
    "top_p",
    "min_p",
    "min_new_tokens",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
)
"""Keys of ``generation_kwargs`` that are keys of ``[sampling]``."""

DEFAULT_REVISION = "main"
"""What TRL's ``ModelConfig`` has for a folder, too, which has no revisions."""

IGNORED_INIT = ("attn_implementation", "device_map", "use_cache", "low_cpu_mem_usage")
"""Keys of ``model_init_kwargs`` that change no number."""


def common_tables(args: TrlConfig, batches: Batches, ranks: int, problems: Problems) -> Table:
    """Return name, seed, optimizer, checkpoints and trackers."""
    for what in ("logging_strategy", "eval_strategy", "save_strategy"):
        problems.check_choice(what, _value_of(getattr(args, what)), STRATEGIES, "Truing has no such strategy")
    problems.check_choice("optim", _value_of(args.optim), ADAMW, "Truing's optimizer is AdamW")
    name = args.run_name or Path(str(args.output_dir)).resolve().name
    return {
        "name": re.sub(r"[/\\\x00-\x1f\x7f]", "-", str(name)).strip(".") or "trl",
        "seed": args.seed,
        "trainer": {"ranks": ranks},
        "optimizer": {
            "beta1": args.adam_beta1,
            "beta2": args.adam_beta2,
            "eps": args.adam_epsilon,
            "weight_decay": args.weight_decay,
            "max_grad_norm": args.max_grad_norm or NO_CLIPPING,
            **learning_schedule(args, batches, problems),
        },
        **_checkpoint_keys(args, batches, problems),
        "track": {"to": _trackers(args, problems), "project": args.project, "names": "trl"},
    }


def _checkpoint_keys(args: TrlConfig, batches: Batches, problems: Problems) -> Table:
    """Return when checkpoints are written, and how many are kept."""
    is_default = _value_of(args.save_strategy) == "steps" and args.save_steps == args.defaults()["save_steps"]
    every = "auto" if is_default else _every(args, batches, "save")
    if args.load_best_model_at_end:
        for name in ("eval_strategy", "save_strategy"):
            if _value_of(getattr(args, name)) == "no":
                reason = "load_best_model_at_end chooses among checkpoints that were evaluated"
                problems.add(name, "no", reason, "set it to steps")
        metric = (args.metric_for_best_model or "").removeprefix("eval_")
        if metric not in ("", "reward", "loss"):
            reason = "with load_best_model_at_end the best is chosen by the reward, in SFT by the loss"
            problems.add("metric_for_best_model", metric, reason, "leave it out")
    if args.save_total_limit is None or args.save_total_limit <= 0:  # as in transformers, no limit
        return {"checkpoint_every": every}
    # as in transformers, the newest is kept beside the best
    limit = max(args.save_total_limit, 2 if args.load_best_model_at_end else 1)
    return {"checkpoint_every": every, "checkpoint_limit": limit}


def model_table(args: TrlConfig, problems: Problems) -> Table:
    """Return ``[model]`` but its name."""
    given = dict(args.model_init_kwargs or {})
    dtype = str(given.pop("dtype", given.pop("torch_dtype", None)) or "").removeprefix("torch.")
    revision = given.pop("revision", None)
    if others := {key: value for key, value in given.items() if value and key not in IGNORED_INIT}:
        problems.add(
            "model_init_kwargs",
            others,
            "Truing loads models itself: of these it reads revision and dtype",
            "leave the others out, or pass the model as an object",
        )
    if dtype not in ("", "auto", "float32", "bfloat16"):
        problems.add("model_init_kwargs", dtype, "Truing computes in float32 or bfloat16", "set one of them")
        dtype = ""
    on_gpu = torch.cuda.is_available() and not args.use_cpu
    half = args.bf16 if args.bf16 is not None else on_gpu
    table: Table = {
        "dtype": "bfloat16" if half or dtype == "bfloat16" else "float32",
        "device": "cpu" if args.use_cpu else "auto",
    }
    return table if revision in (None, DEFAULT_REVISION) else table | {"revision": revision}


def sampling_tables(args: TrlConfig, max_turns: int | None, problems: Problems) -> Table:
    """Return ``[sampling]``, ``[chat]`` and ``[episode]``; ``max_turns`` is None without tools."""
    given = dict(args.generation_kwargs or {})
    if others := {key: value for key, value in given.items() if key not in SAMPLING}:
        problems.add(
            "generation_kwargs", others, "they are not keys of [sampling]", f"use {', '.join(SAMPLING)}"
        )
    sampling = {
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": max(0, args.top_k or 0),  # -1 and None are off, too
        "min_p": args.min_p or 0.0,
        "max_new_tokens": args.max_completion_length,
        **{key: value for key, value in given.items() if key in SAMPLING},
    }
    episode: Table = {"timeout": TOOL_TIMEOUT, "max_reply_chars": LONGEST_REPLY}
    if max_turns is not None:
        episode["max_turns"] = max_turns
    return {
        "sampling": sampling,
        "chat": {"template_kwargs": dict(args.chat_template_kwargs or {})},
        "episode": episode,
    }


def engine_tables(args: TrlConfig, problems: Problems) -> Table:
    """Return ``[engine]`` and ``[correction]``; empty without vLLM."""
    if not args.use_vllm:
        return {}
    problems.check_choice("vllm_mode", args.vllm_mode, ("colocate", "server"), "TRL has no such mode")
    engine: Table = {"kind": "vllm", "timeout": args.vllm_server_timeout}
    if args.vllm_mode == "server":
        address = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
        engine["servers"] = [address]
    else:
        arguments = {
            "gpu-memory-utilization": args.vllm_gpu_memory_utilization,
            "max-model-len": args.vllm_max_model_length,
            "model-impl": None if args.vllm_model_impl == "vllm" else args.vllm_model_impl,
        }
        engine["arguments"] = {key: value for key, value in arguments.items() if value is not None}
        engine |= {"tensor_parallel": args.vllm_tensor_parallel_size, "sleep": args.vllm_enable_sleep_mode}
    tables: Table = {"engine": engine}
    if getattr(args, "vllm_importance_sampling_correction", False):
        mode = args.vllm_importance_sampling_mode
        problems.check_choice("vllm_importance_sampling_mode", mode, CORRECTIONS, "TRL has no such mode")
        tables["correction"] = {
            "method": CORRECTIONS.get(mode, "truncate"),
            "high": args.vllm_importance_sampling_clip_max,
            "low": args.vllm_importance_sampling_clip_min or NO_LOWER_LIMIT,
        }
    return tables


def eval_table(args: TrlConfig, batches: Batches, tasks: int, problems: Problems) -> Table:
    """Return ``[eval]`` of ``tasks`` evaluation rows: as TRL, with the sampling parameters of training."""
    strategy = _value_of(args.eval_strategy)
    if strategy != "no" and not tasks:
        problems.add(
            "eval_strategy", strategy, "there is no eval_dataset", "pass eval_dataset, or leave it out"
        )
    if tasks == 1:
        problems.add("eval_dataset", "1 row", "an interval needs two tasks", "add a row")
    if tasks < 2:
        return {"tasks": 0}
    return {
        "tasks": tasks,
        "samples": args.num_generations_eval or args.num_generations,
        "temperature": args.temperature,
        "base": args.eval_on_start,
        "every": evaluation_every(args, batches),
    }


def evaluates(args: TrlConfig) -> bool:
    """Whether the training evaluates."""
    return _value_of(args.eval_strategy) != "no" or args.eval_on_start


def evaluation_every(args: TrlConfig, batches: Batches) -> int:
    """Return the steps between evaluations; 0 for none."""
    return _every(args, batches, "eval")


def logging_every(args: TrlConfig, batches: Batches) -> int:
    """Return the steps that a line of the log averages; 0 for no line."""
    return _every(args, batches, "logging")


def _every(args: TrlConfig, batches: Batches, what: str) -> int:
    """Return the steps between logs, evaluations or checkpoints; 0 for none."""
    strategy = _value_of(getattr(args, f"{what}_strategy"))
    if strategy == "epoch":
        return batches.steps_per_epoch
    optimizer_steps = getattr(args, f"{what}_steps")
    if what == "eval" and optimizer_steps is None:
        optimizer_steps = args.logging_steps
    return batches.steps_of(optimizer_steps) if strategy == "steps" else 0


def _value_of(value: Any) -> str:
    """Return the text of an argument that may be an enum of transformers."""
    return str(getattr(value, "value", value))


def _trackers(args: TrlConfig, problems: Problems) -> Sequence[str]:
    """Return the trackers of ``report_to``."""
    given = args.report_to
    names = [given] if isinstance(given, str) else list(given or ())
    names = [name for name in names if name != "none"]
    if others := [name for name in names if name not in TRACKERS]:
        problems.add("report_to", others, "Truing has no such tracker", f"use {', '.join(TRACKERS)}")
    return [name for name in names if name in TRACKERS]


def merged(*tables: Mapping[str, Any]) -> Table:
    """Return tables as one; tables of one name are joined."""
    result: Table = {}
    for table in tables:
        for key, value in table.items():
            result[key] = {**result.get(key, {}), **value} if isinstance(value, Mapping) else value
    return result
