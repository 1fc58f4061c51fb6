"""Writes a dump with SkyRL's code: `python -m dev.dumps.skyrl CHECKOUT tests/data/dumps/skyrl`.

The padded batch, the boundaries of prompts, advantages and the file are made by functions of the checkout.
Forwards are the demo's.
"""

import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

from dev.dumps.batches import batches, from_command_line
from dev.dumps.extract import function_of
from dev.dumps.slime import responses
from truing.doctor.evidence import Step
from truing.doctor.traces.demo import GROUP
from truing.types.token import Origin

ROOT = "skyrl/backends/skyrl_train"

PACKAGES = (
    *("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train", "skyrl.backends.skyrl_train.utils"),
    *("skyrl.train", "skyrl.train.dataset"),
)


def main() -> None:
    """Write the steps."""
    checkout, out = from_command_line()
    for name in PACKAGES:  # without what they import for a cluster
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(checkout / name.replace(".", "/"))]
    from skyrl.backends.skyrl_train.training_batch import (  # pyright: ignore
        TrainingInputBatch,
        pad_training_input_batch,
    )
    from skyrl.train.dataset import preprocess  # pyright: ignore

    names = {"torch": torch, "np": np, "defaultdict": defaultdict, "AdvantageEstimator": MagicMock()}
    names["register_advantage_estimator"] = lambda name: lambda function: function
    advantages = function_of(checkout / ROOT / "utils/ppo_utils.py", "compute_grpo_outcome_advantage", names)
    dump = function_of(checkout / "skyrl/train/trainer.py", "dump_data", {"Path": out.joinpath})
    trainer: Any = SimpleNamespace(cfg=SimpleNamespace(trainer=SimpleNamespace(export_path="")))
    for number, step in enumerate(batches(), start=1):
        uids = [str(index // GROUP) for index, *_ in step.slices()]
        given = preprocess.convert_prompts_responses_to_batch_tensors(0, *_lists(step))
        keys = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask", "rollout_logprobs")
        batch = TrainingInputBatch(dict(zip(keys, given, strict=False)) | {"values": None})
        boundaries = preprocess.compute_prompt_boundaries(uids)
        batch.metadata = {"uids": uids, "policy_prompt_boundaries": boundaries}
        width = batch["response_mask"].shape[1]
        for name, ours in {"action_log_probs": "old_logprob", "base_action_log_probs": "ref_logprob"}.items():
            batch[name] = _padded(list(responses(step, ours)), width)
        batch["advantages"], batch["returns"] = advantages(
            token_level_rewards=batch.pop("rewards"), response_mask=batch["response_mask"], index=uids
        )
        batch = pad_training_input_batch(batch, 2)
        batch.metadata.pop("uids")
        dump(trainer, batch, f"global_step_{number}_training_input")


def _lists(step: Step) -> list[list[Any]]:
    """Return prompts, responses, rewards at their last tokens, loss masks and the sampler's numbers."""
    prompts = [step.tokens["token_ids"][part][: row.prompt_length].tolist() for _, row, part in step.slices()]
    answers = [each.tolist() for each in responses(step, "token_ids")]
    rewards = [[0.0] * (len(ids) - 1) + [row.reward] for ids, row in zip(answers, step.samples, strict=True)]
    masks = [[int(x == Origin.SAMPLED) for x in each.tolist()] for each in responses(step, "origin")]
    return [prompts, answers, rewards, masks, [each.tolist() for each in responses(step, "sampler_logprob")]]


def _padded(rows: list[torch.Tensor], width: int) -> torch.Tensor:
    """Return rows [B, R] with zeros on their left."""
    return torch.stack([torch.cat([torch.zeros(width - len(row)), row]) for row in rows])


if __name__ == "__main__":
    main()
