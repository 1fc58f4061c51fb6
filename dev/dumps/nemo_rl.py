"""Writes a dump with NeMo-RL's code: `python -m dev.dumps.nemo_rl CHECKOUT tests/data/dumps/nemo_rl`.

From messages on, everything is computed by functions of the checkout: the masks, the padded batch, the
advantages, what is logged and the file. Two of them are parts of modules that need a cluster to import,
so they are compiled out of their files.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from dev.dumps.batches import batches, from_command_line, messages
from dev.dumps.extract import function_of, run_block
from truing.doctor.evidence import Step

GRPO = "nemo_rl/algorithms/grpo.py"


def main() -> None:
    """Write the steps."""
    checkout, out = from_command_line(
        "nemo_rl.algorithms.loss", "nemo_rl.models.policy", "nemo_rl.utils.logger"
    )
    from nemo_rl.algorithms.advantage_estimator import (  # pyright: ignore[reportMissingImports]
        AdvEstimatorConfig,
        GRPOAdvantageEstimator,
    )
    from nemo_rl.data.llm_message_utils import (  # pyright: ignore[reportMissingImports]
        batched_message_log_to_flat_message,
    )
    from nemo_rl.distributed.batched_data_dict import BatchedDataDict  # pyright: ignore[reportMissingImports]

    names = {"os": os, "json": json, "torch": torch, "np": np, "BatchedDataDict": BatchedDataDict}
    logger = function_of(checkout / "nemo_rl/utils/logger.py", "log_batched_dict_as_jsonl", names)
    names = {"torch": torch, "cast": cast, "backfill_missing_routed_experts": lambda logs: None}
    masks = function_of(checkout / GRPO, "add_grpo_token_loss_masks_and_generation_logprobs", names)
    estimator = GRPOAdvantageEstimator(AdvEstimatorConfig(), None)
    for number, step in enumerate(batches()):
        log = [_message_log(step, part) for _, _, part in step.slices()]
        masks(log)
        flat, lengths = batched_message_log_to_flat_message(log, pad_value_dict={"token_ids": 0})
        rewards = torch.tensor([sample.reward for sample in step.samples])
        prompts = torch.stack([row[0]["token_ids"] for row in log])
        data = {
            "input_ids": flat["token_ids"],
            "token_mask": flat["token_loss_mask"],
            "sample_mask": torch.ones(len(log)),
            "generation_logprobs": flat["generation_logprobs"],
            "prev_logprobs": flat["old"],
        }
        data["advantages"] = estimator.compute_advantage(prompts, rewards, data["token_mask"])
        _log(checkout, out, number, logger, flat, rewards, lengths, data)


def _message_log(step: Step, part: slice) -> list[dict[str, Any]]:
    """Return a row as NeMo-RL's rollouts leave it; ``old`` is what its policy would compute."""
    log = []
    for role, where in messages(step, part):
        ids = step.tokens["token_ids"][where]
        message = {"role": role, "content": "".join(map(chr, 97 + ids)), "token_ids": ids}
        message["old"] = step.tokens["old_logprob"][where].nan_to_num(0.0)
        if role == "assistant":
            message["generation_logprobs"] = step.tokens["sampler_logprob"][where]
        log.append(message)
    return log


def _log(
    checkout: Path, out: Path, number: int, logger: Any, flat: Any, rewards: Any, lengths: Any, data: Any
) -> None:
    """Run the block of ``grpo_train`` that logs the training data of a step."""
    names = {
        "_should_log_nemo_gym_responses": lambda config: False,
        "master_config": SimpleNamespace(grpo=SimpleNamespace(use_dynamic_sampling=False)),
        "repeated_batch": {},
        "flat_messages": flat,
        "rewards": rewards,
        "input_lengths": lengths,
        "train_data": data,
        "total_steps": number,
        "logger": SimpleNamespace(
            log_batched_dict_as_jsonl=lambda *log: logger(SimpleNamespace(base_log_dir=str(out)), *log)
        ),
    }
    run_block(checkout / GRPO, "grpo_train", "train_data_step", names)


if __name__ == "__main__":
    main()
