"""What an update records: per-token results, losses and gradients of one inner step."""

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from truing.distributed.ranks import Ranks
from truing.learner.backward_sums import BackwardSums
from truing.models.forward.hidden_states import MicroBatch
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample

STREAMS = (
    "logprob",
    "entropy",
    "raw_entropy",
    "token_gradient",
    "value",
    "value_gradient",
    "probability_below",
)


@dataclass(eq=False)
class Trace:
    """Record of one inner step: its minibatch, per-token results by sample id, losses and gradient norms."""

    inner_step: int
    samples: list[Sample]
    logprob: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, NaN outside ``loss_mask``
    entropy: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, under the sampling parameters
    raw_entropy: dict[str, Tensor] = field(default_factory=dict)  # [T] nats, of the model's distribution
    token_gradient: dict[str, Tensor] = field(default_factory=dict)  # [T] −∂loss/∂logprob
    value: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # [T] reward units, of the critic
    value_gradient: dict[str, Tensor] = field(default_factory=dict)  # [T] −∂loss/∂value
    loss: dict[str, float] = field(default_factory=dict)  # by loss term, weighted
    grad_norms: list[float] = field(default_factory=list)  # policy, critic; before clipping
    skip_reason: str = ""  # "" if the optimizer stepped
    head_step: float = 0.0  # L2 norm of the change of the critic's head
    passes: list[list[MicroBatch]] = field(default_factory=list)  # of all ranks, by backward pass
    due: list[str] = field(default_factory=list[str])  # samples with a gradient in some loss term
    backward_counts: Counter[str] = field(default_factory=Counter)  # backward passes per sample
    counts_by_rank: list[Counter[str]] = field(default_factory=list[Counter[str]])  # the same of each rank
    # policy, critic: gradients summed over backward passes, and their comparison with the optimizer's
    backward_sums: list[BackwardSums] = field(default_factory=list[BackwardSums])
    sum_checks: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    routes: tuple[int, int] = (0, 0)  # sets of experts on record, and those that the model would not select
    # [T] probability of all ids below the sampled one; NaN where draws are not replayed
    probability_below: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def add(self, samples: Sequence[Sample], scores: Scores, losses: Mapping[str, Tensor]) -> None:
        """Add a micro-batch after its backward pass: per-token streams, NaN where not scored, and losses."""
        streams = {name: getattr(scores, name).detach() for name in ("logprob", "entropy", "raw_entropy")}
        gradient_BT = scores.logprob.grad  # None if no loss term reads log-probabilities
        streams["token_gradient"] = torch.zeros_like(scores.logprob) if gradient_BT is None else -gradient_BT
        self.backward_counts.update(sample.sample_id for sample in samples)
        self.routes = self.routes[0] + scores.routes[0], self.routes[1] + scores.routes[1]
        for name, stream_BT in streams.items():
            for b, sample in enumerate(samples):
                values = stream_BT[b, : len(sample)].cpu()
                recorded_T = loss_mask(sample)
                if name == "token_gradient":
                    # a gradient outside the mask is a fault that the doctor must see
                    recorded_T = recorded_T | (values != 0)
                getattr(self, name)[sample.sample_id] = torch.where(recorded_T, values, torch.nan)
        if scores.mass_below is not None:
            for b, sample in enumerate(samples):
                self.probability_below[sample.sample_id] = scores.mass_below[b, : len(sample)].cpu()
        if scores.value is not None and scores.value.grad is not None:
            for b, sample in enumerate(samples):
                self.value[sample.sample_id] = scores.value[b, : len(sample)].detach().cpu()
                self.value_gradient[sample.sample_id] = -scores.value.grad[b, : len(sample)].cpu()
        for name, value in losses.items():
            self.loss[name] = self.loss.get(name, 0.0) + value.item()

    def exchange(self, ranks: Ranks) -> None:
        """Add the results of the other ranks: afterwards all ranks have the same."""
        for name in STREAMS:
            setattr(self, name, ranks.gather_table(f"the exchange of {name}", getattr(self, name)))
        losses = ranks.gather("the exchange of losses", self.loss)
        self.loss = {
            name: sum(loss.get(name, 0.0) for loss in losses) for name in dict(ChainMap(*reversed(losses)))
        }
        self.counts_by_rank = ranks.gather("the exchange of backward passes", self.backward_counts)
        self.backward_counts = Counter(name for each in self.counts_by_rank for name in each.elements())
        routes = ranks.gather("the exchange of counted routes", self.routes)
        self.routes = sum(one for one, _ in routes), sum(two for _, two in routes)
        for sums in self.backward_sums:
            sums.exchange(ranks)

    @property
    def tokens_computed(self) -> int:
        """Tokens of all forwards of the inner step."""
        return sum(micro.tokens for micros in self.passes for micro in micros if not micro.is_padding)


def loss_mask(rows: Sample | Batch) -> Tensor:
    """Return the tokens that some loss term reads: [T] bool of a sample, [B, T] of a batch."""
    return rows.policy_mask | rows.kl_mask | rows.supervised_mask
