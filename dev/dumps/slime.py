"""Writes dumps with slime's and miles' code: `python -m dev.dumps.slime CHECKOUT tests/data/dumps/slime`.

From samples on, everything but forwards is computed by functions of the checkout: rewards, the split over
ranks and micro-batches, advantages and the file. The process is the only rank of a Megatron that is mocked.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch

from dev.dumps.batches import batches, from_command_line
from dev.dumps.extract import function_of
from truing.doctor.evidence import Step
from truing.doctor.traces.demo import GROUP, PROMPTS
from truing.types.token import Origin

MPU = {
    "is_pipeline_last_stage.return_value": True,
    "get_tensor_model_parallel_rank.return_value": 0,
    "get_context_parallel_rank.return_value": 0,
    "get_data_parallel_rank.return_value": 0,
    "get_data_parallel_world_size.return_value": 1,
    "get_data_parallel_src_rank.return_value": 0,
}

ARGS = {
    "advantage_estimator": "grpo",
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "n_samples_per_prompt": GROUP,
    "rollout_batch_size": PROMPTS,
    "global_batch_size": GROUP * PROMPTS,
    "micro_batch_size": 8,
    "use_dynamic_batch_size": False,
    "balance_data": False,
    "balance_by_flops": False,
    "use_rollout_logprobs": False,
    "kl_coef": 0.0,
    "custom_advantage_function_path": None,
    "use_opd": False,
    "normalize_advantages": False,
    "reward_key": None,
}


def main() -> None:
    """Write the steps."""
    megatron = MagicMock()
    megatron.mpu.configure_mock(**MPU)
    checkout, out = from_command_line("megatron", "slime.observability.timer", "slime.utils.processing_utils")
    ray = SimpleNamespace(get=lambda value: value)
    sys.modules |= {"megatron.core": megatron, "slime.backends.megatron_utils": MagicMock(), "ray": ray}
    cut = SimpleNamespace(all_gather_with_cp=lambda value, total, response: value)
    sys.modules["slime.backends.megatron_utils.cp_utils"] = cut  # pyright: ignore[reportArgumentType]
    torch.distributed.get_rank = lambda: 0
    from slime.observability.train_data_utils import save_debug_train_data  # pyright: ignore

    args = SimpleNamespace(**ARGS, save_debug_train_data=str(out / "{rollout_id}.pt"))
    for number, step in enumerate(batches()):
        data = _rollout_data(checkout, args, step)
        data["log_probs"] = list(responses(step, "old_logprob"))
        data["ref_log_probs"] = list(responses(step, "ref_logprob"))
        _advantages(checkout, args, data)
        save_debug_train_data(args, rollout_id=number, rollout_data=data)


def _rollout_data(checkout: Path, args: Any, step: Step) -> Any:
    """Return what the only rank gets of a rollout."""
    from slime.observability.rollout_data_utils import tensorize_rollout_data_for_training  # pyright: ignore
    from slime.utils.data import get_source, process_rollout_data  # pyright: ignore
    from slime.utils.dp_schedule import build_dp_schedule  # pyright: ignore
    from slime.utils.types import Sample  # pyright: ignore

    names = {
        "torch": torch,
        "Sample": Sample,
        "get_source": get_source,
        "build_dp_schedule": build_dp_schedule,
        "tensorize_rollout_data_for_training": tensorize_rollout_data_for_training,
        "ray": SimpleNamespace(put=lambda value: value),
        "Box": lambda value: SimpleNamespace(inner=value),
    }
    file = checkout / "slime/ray/rollout.py"
    parallel = {"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
    manager: Any = SimpleNamespace(args=args, train_parallel_config=parallel)
    manager.custom_reward_post_process_func = manager.custom_convert_samples_to_train_data_func = None
    rewards = function_of(file, "_post_process_rewards", names)
    manager._post_process_rewards = lambda samples: rewards(manager, samples)
    train_data = function_of(file, "_convert_samples_to_train_data", names)(
        manager, list(samples(step, Sample))
    )
    refs = function_of(file, "_split_train_data_by_dp", names)(manager, train_data)
    return process_rollout_data(args, refs, 0, 1)


def samples(step: Step, kind: Any) -> Iterator[Any]:
    """Yield rows as slime's rollouts leave them: the reply of a tool is in the response, masked."""
    masks, sampler = responses(step, "origin"), responses(step, "sampler_logprob")
    for (index, row, part), origin, logprob in zip(step.slices(), masks, sampler, strict=True):
        yield kind(
            index=index,
            group_index=index // GROUP,
            tokens=step.tokens["token_ids"][part].tolist(),
            response_length=len(origin),
            reward=row.reward,
            loss_mask=[int(each == Origin.SAMPLED) for each in origin.tolist()],
            rollout_log_probs=logprob.tolist(),
            status=kind.Status.COMPLETED,
        )


def responses(step: Step, name: str) -> Iterator[torch.Tensor]:
    """Yield a stream over the response of each row; 0 where it has no number."""
    for _, row, part in step.slices():
        yield step.tokens[name][part][row.prompt_length :].nan_to_num(0.0).clone()


def _advantages(checkout: Path, args: Any, data: Any) -> None:
    from slime.utils.ppo_utils import get_grpo_returns  # pyright: ignore

    names = {"torch": torch, "mpu": sys.modules["megatron.core"].mpu, "get_grpo_returns": get_grpo_returns}
    function_of(checkout / "slime/backends/megatron_utils/loss.py", "compute_advantages_and_returns", names)(
        args, data
    )


if __name__ == "__main__":
    main()
