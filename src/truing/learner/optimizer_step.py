"""One optimizer step: its minibatch, what its passes computed, and what the optimizer did."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from truing.distributed.packed_table import pack, unpack
from truing.distributed.ranks import Ranks
from truing.models.forward.hidden_states import MicroBatch
from truing.types.batch import Batch, Scores
from truing.types.passes import PASS_STREAMS, Passes
from truing.types.sample import Sample
from truing.types.step_table import is_known, starts_of


class OptimizerStep:
    """One minibatch and its results; afterwards all ranks have the same.

    ``streams`` have the tokens of the minibatch, one sample after the other, [n], NaN where not computed:
    ``types.passes.PASS_STREAMS``, and ``probability_below``, the probability of all ids below the sampled
    one, where draws are replayed.
    """

    def __init__(self, index: int, samples: Sequence[Sample], due: Sequence[Sample] = ()) -> None:
        self.index = index  # within the step
        self.samples = list(samples)
        self.due = [sample.sample_id for sample in due]  # samples with a gradient in some loss term
        self.place = {sample.sample_id: i for i, sample in enumerate(self.samples)}
        self.starts = starts_of([len(sample) for sample in self.samples])
        self.streams: dict[str, Tensor] = {}
        self.micro_batch = torch.full((len(self.samples),), -1)  # [B]; −1 for a sample that was not computed
        self.counts = torch.zeros(1, len(self.samples), dtype=torch.int64)  # backward passes, [ranks, B]
        self.loss: dict[str, float] = {}  # by loss term, weighted
        self.grad_norms: list[float] = []  # policy, critic; before clipping
        self.skip_reason = ""  # "" if the optimizer stepped
        self.micro_batches: list[list[MicroBatch]] = []  # by backward pass, and rank
        self.routes = 0, 0  # sets of experts on record, and those that the model would not select

    def add(self, batch: Batch, scores: Scores, losses: Mapping[str, Tensor]) -> None:
        """Add a micro-batch after its backward pass."""
        index_n = self._tokens([self.place[sample.sample_id] for sample in batch.samples])
        for name, stream_BT in _computed(batch, scores, "entropy" in losses).items():
            self._write(name, index_n, stream_BT[batch.valid.cpu()])
        for sample in batch.samples:
            self.micro_batch[self.place[sample.sample_id]] = len(self.micro_batches) - 1
            self.counts[0, self.place[sample.sample_id]] += 1
        self.routes = self.routes[0] + scores.routes[0], self.routes[1] + scores.routes[1]
        for name, value in losses.items():
            self.loss[name] = self.loss.get(name, 0.0) + value.item()

    def exchange(self, ranks: Ranks) -> None:
        """Add the results of the other ranks."""
        if ranks.size > 1:
            own = self.counts[0].nonzero()[:, 0]
            table = {"samples": own, "micro_batch": self.micro_batch[own]}
            table |= {name: stream[self._tokens(own.tolist())] for name, stream in self.streams.items()}
            for part in map(unpack, ranks.gather("the exchange of an optimizer step", pack(table))):
                places = part.pop("samples")
                self.micro_batch[places] = part.pop("micro_batch")
                for name, values in part.items():
                    self._write(name, self._tokens(places.tolist()), values)
        losses = ranks.gather("the exchange of losses", self.loss)
        names = dict.fromkeys(name for loss in losses for name in loss)
        self.loss = {name: sum(loss.get(name, 0.0) for loss in losses) for name in names}
        self.counts = torch.cat(ranks.gather("the exchange of backward passes", self.counts))
        routes = ranks.gather("the exchange of counted routes", self.routes)
        self.routes = sum(one for one, _ in routes), sum(two for _, two in routes)

    def stream(self, name: str, sample: Sample) -> Tensor:
        """Return a stream of one sample, [T]; NaN where it is not computed."""
        place = self.place[sample.sample_id]
        if name not in self.streams:
            return torch.full((len(sample),), math.nan)
        return self.streams[name][self.starts[place] : self.starts[place + 1]]

    @property
    def computed(self) -> list[Sample]:
        """The samples that some rank computed."""
        counts_B = self.counts.sum(0)
        return [sample for sample in self.samples if counts_B[self.place[sample.sample_id]]]

    @property
    def tokens_computed(self) -> int:
        """Tokens of all forwards."""
        return sum(micro.tokens for micros in self.micro_batches for micro in micros if not micro.is_padding)

    def backward_counts(self, rank: int | None = None) -> Counter[str]:
        """Return how often each sample was in a backward pass, of a rank or of all."""
        counts_B = self.counts.sum(0) if rank is None else self.counts[rank]
        return Counter({name: int(counts_B[place]) for name, place in self.place.items() if counts_B[place]})

    def rank_of(self, place: int) -> int:
        """Return the rank that computed a sample, the last of several; −1 if none did."""
        ranks = self.counts[:, place].nonzero()[:, 0].tolist()
        return ranks[-1] if ranks else -1

    def _tokens(self, places: Sequence[int]) -> Tensor:
        """Return the places of the tokens of some samples among all n: [m] int64."""
        parts = [torch.arange(self.starts[i], self.starts[i + 1]) for i in places]
        return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])

    def _write(self, name: str, index_m: Tensor, values_m: Tensor) -> None:
        if name not in self.streams:
            self.streams[name] = torch.full((self.starts[-1],), math.nan, dtype=values_m.dtype)
        self.streams[name][index_m] = values_m


def _computed(batch: Batch, scores: Scores, has_entropy_term: bool) -> dict[str, Tensor]:
    """Return what a micro-batch computed: [B, T] on the CPU, NaN where no loss term reads it."""
    unread_BT = ~loss_mask(batch).cpu()
    streams = {
        "new_logprob": scores.logprob.detach().cpu().masked_fill(unread_BT, math.nan),
        "entropy": scores.entropy.detach().cpu().masked_fill(unread_BT, math.nan),
        "raw_entropy": scores.raw_entropy.detach().cpu().masked_fill(unread_BT, math.nan),
        "token_gradient": _minus_gradient(scores.logprob, unread_BT),
    }
    if has_entropy_term or scores.entropy.grad is not None:
        streams["entropy_gradient"] = _minus_gradient(scores.entropy, unread_BT)
    if scores.mass_below is not None:
        streams["probability_below"] = scores.mass_below.cpu()
    if scores.value is not None and scores.value.grad is not None:
        streams |= {"new_value": scores.value.detach().cpu(), "value_gradient": -scores.value.grad.cpu()}
    return streams


def _minus_gradient(stream_BT: Tensor, unread_BT: Tensor) -> Tensor:
    """Return −∂loss/∂stream: [B, T] on the CPU; 0 if no loss term reads the stream.

    NaN where no loss term reads the token, but a gradient there is a fault that the doctor must see.
    """
    gradient_BT = torch.zeros_like(stream_BT) if stream_BT.grad is None else -stream_BT.grad
    return gradient_BT.cpu().masked_fill(unread_BT & (gradient_BT.cpu() == 0), math.nan)


def computed_steps(steps: Sequence[OptimizerStep]) -> Sequence[OptimizerStep]:
    """Return the optimizer steps with a forward; all of them if none has any."""
    return [each for each in steps if each.tokens_computed] or steps


def passes_of(samples: Sequence[Sample], steps: Sequence[OptimizerStep]) -> Passes:
    """Return all passes of the optimizer steps of a step: by sample, then by optimizer step."""
    index = {sample.sample_id: i for i, sample in enumerate(samples)}
    passes = sorted((index[name], k, own) for k, step in enumerate(steps) for name, own in step.place.items())
    columns = [
        (i, steps[k].index, int(steps[k].micro_batch[own]), steps[k].rank_of(own)) for i, k, own in passes
    ]
    sample_P, step_P, micro_P, rank_P = torch.tensor(columns, dtype=torch.int64).view(-1, 4).T.contiguous()
    names = [name for name in PASS_STREAMS if any(name in step.streams for step in steps)]
    streams = {name: _stream_of_passes(name, steps, [(k, own) for _, k, own in passes]) for name in names}
    known = {name: stream_M for name, stream_M in streams.items() if is_known(stream_M)}
    return Passes(sample=sample_P, optimizer_step=step_P, micro_batch=micro_P, rank=rank_P, streams=known)


def _stream_of_passes(name: str, steps: Sequence[OptimizerStep], passes: Sequence[tuple[int, int]]) -> Tensor:
    """Return a stream of passes, one after the other: [M], NaN where not computed.

    Args:
        name: of the stream.
        steps: optimizer steps.
        passes: of each pass: which of the steps, and the place of its sample there.
    """
    streams = [step.streams.get(name, torch.full((step.starts[-1],), math.nan)) for step in steps]
    return torch.cat([streams[k][steps[k].starts[own] : steps[k].starts[own + 1]] for k, own in passes])


def loss_mask(rows: Sample | Batch) -> Tensor:
    """Return the tokens that some loss term reads: [T] bool of a sample, [B, T] of a batch."""
    return rows.policy_mask | rows.kl_mask | rows.supervised_mask
