"""The policy losses, value and gradient, against polgrad's and against TRL's own code on the same tensors."""

import warnings
from collections import defaultdict
from types import SimpleNamespace

import polgrad
import pytest
import torch
import trl
from torch import Tensor

from truing.ops.losses import OBJECTIVES

NAMES = tuple(OBJECTIVES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_polgrad(case, name, seed):
    objective = OBJECTIVES[name]
    logprob_BT, old_BT, advantage_BT, mask_BT = case.batch(seed)
    modes = {
        "token_mean": "TOKEN_MEAN",
        "sequence_mean": "SEQ_MEAN_TOKEN_MEAN",
        "sequence_sum": "TOKEN_SUM_NORM",
    }
    surrogate, clip = {
        "clip": lambda: ("PG_CLIP", polgrad.ClipConfig(objective.clip_low, objective.clip_high)),
        "cispo": lambda: ("CISPO", polgrad.ClipConfig(None, objective.max_ratio - 1)),
        "reinforce": lambda: ("REINFORCE", None),
    }[objective.surrogate]()
    config = polgrad.PolicyLossConfig(
        ratio=polgrad.RatioKind(objective.ratio),
        surrogate=polgrad.SurrogateKind[surrogate],
        clip=clip,
        aggregation=polgrad.Aggregation[modes[objective.aggregation]],
        norm_len=case.budget,
    )

    def theirs(x):
        streams = {
            "logprobs": x,
            "old_logprobs": old_BT,
            "advantages": advantage_BT,
            "response_mask": mask_BT,
        }
        return polgrad.policy_loss(config, **streams).loss

    expected, expected_BT = case.with_gradient(theirs, logprob_BT)
    got, got_BT = case.with_gradient(
        lambda x: case.loss_of(objective, x, old_BT, advantage_BT, mask_BT), logprob_BT
    )
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got_BT, expected_BT)


@pytest.fixture(scope="module")
def trl_compute_loss(case):
    """TRL's own loss, called on a stand-in for its trainer that holds only what the method reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compute = trl.GRPOTrainer._compute_loss

    def loss(objective, loss_type, streams, *, micro_batches=1) -> Tensor:
        logprob_BT, old_BT, advantage_BT, mask_BT = (x.nan_to_num(nan=0.0) for x in streams)
        high = objective.max_ratio if loss_type == "cispo" else objective.clip_high
        trainer = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *_, **__: (
                logprob_BT,
                torch.zeros_like(logprob_BT),
                None,
            ),
            _metrics={"train": defaultdict(list)},
            _entropy_bonus_enabled=False,
            accelerator=SimpleNamespace(
                num_processes=1,
                gather=lambda x: x,
                reduce=lambda x, reduction: x,
                gather_for_metrics=lambda x: x,
            ),
            args=SimpleNamespace(
                delta=None, steps_per_generation=micro_batches, use_bias_correction_kl=False
            ),
            aux_loss_enabled=False,
            beta=0.0,
            current_gradient_accumulation_steps=micro_batches,
            epsilon_high=high,
            epsilon_low=objective.clip_low,
            importance_sampling_level=objective.ratio,
            loss_type=loss_type,
            max_completion_length=case.budget,
            model=SimpleNamespace(training=True),
            off_policy_mask_threshold=None,
            top_entropy_quantile=1.0,
            use_vllm=False,
        )
        ids_BT = torch.zeros_like(mask_BT, dtype=torch.int64)
        inputs = {
            "prompt_ids": ids_BT,
            "prompt_mask": mask_BT.long(),
            "completion_ids": ids_BT,
            "completion_mask": mask_BT.long(),
            "advantages": advantage_BT,
            "old_per_token_logps": old_BT,
            "num_items_in_batch": case.lengths_B.sum(),
        }
        return compute(trainer, None, inputs)

    return loss


TRL_TYPES = {
    "grpo": "grpo",
    "dr_grpo": "dr_grpo",
    "dapo": "dapo",
    "bnpo": "bnpo",
    "gspo": "grpo",
    "cispo": "cispo",
}


@pytest.mark.parametrize(("name", "loss_type"), TRL_TYPES.items())
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_trl(case, trl_compute_loss, name, loss_type, seed):
    objective = OBJECTIVES[name]
    logprob_BT, *rest = case.batch(seed)
    expected, expected_BT = case.with_gradient(
        lambda x: trl_compute_loss(objective, loss_type, (x, *rest)), logprob_BT
    )
    got, got_BT = case.with_gradient(lambda x: case.loss_of(objective, x, *rest), logprob_BT)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got_BT, expected_BT.nan_to_num(nan=0.0))


@pytest.mark.parametrize(("name", "same"), [("dapo", True), ("bnpo", False)])
def test_trl_splits_bnpo_differently(case, trl_compute_loss, name, same):
    """Pins the module docstring's claim on TRL under gradient accumulation."""
    objective, streams = OBJECTIVES[name], case.batch()
    halves = zip(*(stream_BT.chunk(2) for stream_BT in streams), strict=True)
    accumulated = sum(trl_compute_loss(objective, name, half, micro_batches=2) for half in halves)
    if same:  # TRL counts num_items_in_batch over all micro-batches of a generation
        torch.testing.assert_close(accumulated, case.loss_of(objective, *streams))
    else:
        assert abs(accumulated - case.loss_of(objective, *streams)) > 1e-3
