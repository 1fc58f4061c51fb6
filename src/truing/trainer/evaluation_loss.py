"""The loss on demonstrations that are not trained: of evaluation tasks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from truing.algos.flatten import flatten
from truing.analysis.task_halves import choosing_half
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import score
from truing.trainer.session import Session
from truing.types.sample import Sample


@dataclass(frozen=True)
class EvaluationLoss:
    """The mean loss of demonstrations, over their tokens, and how many there are."""

    loss: float  # nats per token
    tokens: int
    tasks: int
    choosing: float  # the mean over the half of the tasks that chooses the best checkpoint; NaN without any
    reported: float  # over the other half


@torch.no_grad()
def evaluation_loss(
    session: Session, model: nn.Module, micro_batches: Callable[[Sequence[Sample]], Iterable[MicroBatch]]
) -> EvaluationLoss:
    """Return the loss of a policy on the demonstrations of ``sampler.loss_tasks``.

    The mean is over all tokens together, as in the loss of a step. No random number is drawn.

    Args:
        session: with the tasks.
        model: the policy as it computes.
        micro_batches: returns the micro-batches that this rank computes.
    """
    groups = session.sampler.play_demonstrations(session.sampler.loss_tasks, ("sft", "evaluation loss"))
    samples = [sample for group in groups for rollout in group.rollouts for sample in flatten(rollout)]
    model.eval()
    sums: dict[str, float] = {}
    for micro in micro_batches(samples):
        batch = collate(micro.samples)
        logprob_BT = score(model, batch, batch.supervised_mask).logprob.double().cpu()
        if micro.is_padding:
            continue
        for b, sample in enumerate(micro.samples):
            sums[sample.sample_id] = -float(logprob_BT[b, : len(sample)][sample.supervised_mask].sum())
    sums = {name: each for part in session.policy.ranks.gather("losses", sums) for name, each in part.items()}
    half = choosing_half({sample.task_id for sample in samples})
    choosing, reported = ([s for s in samples if (s.task_id in half) is each] for each in (True, False))
    return EvaluationLoss(
        _mean(samples, sums), _tokens(samples), len(groups), _mean(choosing, sums), _mean(reported, sums)
    )


def _tokens(samples: Sequence[Sample]) -> int:
    return sum(int(sample.supervised_mask.sum()) for sample in samples)


def _mean(samples: Sequence[Sample], sums: Mapping[str, float]) -> float:
    """Return the mean over the tokens of samples; NaN without any."""
    tokens = _tokens(samples)
    return sum(sums[sample.sample_id] for sample in samples) / tokens if tokens else math.nan
