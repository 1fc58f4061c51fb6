"""The loss on demonstrations that are not trained: of evaluation tasks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from truing.algos.flatten import flatten
from truing.analysis.task_halves import choosing_half
from truing.doctor.oracle.forward import plain_logprobs
from truing.errors import ModelError
from truing.measurements.row_logits import row_logits
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.rounding_noise import is_coarse
from truing.models.forward.score import computed_precision, score
from truing.trainer.session import Session
from truing.types.sample import Sample
from truing.utils.rng import seed_of

PLACES = 64
"""Tokens of a demonstration that a plain forward computes again."""

ROUNDING = {False: 1e-3, True: 0.1}
"""Nats per token between two forwards; in a coarse precision, such as bfloat16, as the second."""


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
    checked = samples[seed_of(session.policy.digest(), "plain loss") % len(samples)] if samples else None
    sums: dict[str, float] = {}
    own: Tensor | None = None  # log-probabilities of the checked sample, if this rank computes it
    for micro in micro_batches(samples):
        batch = collate(micro.samples)
        logprob_BT = score(model, batch, batch.supervised_mask).logprob.double().cpu()
        if micro.is_padding:
            continue
        for b, sample in enumerate(micro.samples):
            sums[sample.sample_id] = -float(logprob_BT[b, : len(sample)][sample.supervised_mask].sum())
            if sample is checked:
                own = logprob_BT[b, : len(sample)]
    sums = {name: each for part in session.policy.ranks.gather("losses", sums) for name, each in part.items()}
    if checked is not None:
        known = [each for each in session.policy.ranks.gather("a checked loss", own) if each is not None]
        _prove(model, checked, known[0])
    half = choosing_half({sample.task_id for sample in samples})
    choosing, reported = ([s for s in samples if (s.task_id in half) is each] for each in (True, False))
    return EvaluationLoss(
        _mean(samples, sums), _tokens(samples), len(groups), _mean(choosing, sums), _mean(reported, sums)
    )


def _prove(model: nn.Module, sample: Sample, logprob_T: Tensor) -> None:
    """Raise if the log-probabilities of a demonstration are not those of a plain forward."""
    place_K = sample.supervised_mask.nonzero()[:PLACES, 0]
    if not len(place_K):
        return
    plain_K = plain_logprobs(row_logits(model, sample), sample, place_K.tolist())[0].double().cpu()
    off = float((logprob_T[place_K] - plain_K).abs().mean())
    if not off <= ROUNDING[is_coarse(computed_precision(model))]:
        raise ModelError(
            f"the loss on the demonstration {sample.sample_id} is not that of the model",
            got=f"log-probabilities that are {off:.3g} nats off on average, over {len(place_K)} tokens",
            expected="those of a plain forward",
            remedy="look for dropout, or code that changes the model or the batch of evaluations alone",
        )


def _tokens(samples: Sequence[Sample]) -> int:
    return sum(int(sample.supervised_mask.sum()) for sample in samples)


def _mean(samples: Sequence[Sample], sums: Mapping[str, float]) -> float:
    """Return the mean over the tokens of samples; NaN without any."""
    tokens = _tokens(samples)
    return sum(sums[sample.sample_id] for sample in samples) / tokens if tokens else math.nan
