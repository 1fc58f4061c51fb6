"""The proof of a publication: does a server sample with the weights that were sent to it?

Sent weights say nothing of loaded ones. So three things are compared with the trainer: each layer's response
to a vector, through the engine's own kernel; log-probabilities of fixed rows; and log-probabilities of
sampled turns under the declared sampling parameters. The server's version is counted up afterwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.base import Receipt, Request
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.engines.vllm.params import to_request, to_scoring
from truing.engines.vllm.proof.compare_draws import (
    check_drawn,
    compare_beginnings,
    compare_supports,
    follow_seeds,
)
from truing.engines.vllm.proof.compare_layers import Comparison
from truing.engines.vllm.proof.compare_turns import check_adapted, compare_rows, compare_turns
from truing.engines.vllm.proof.expected_layers import FORMATS, Expected, expected_responses
from truing.engines.vllm.proof.layer_answers import held_before, read_probe
from truing.engines.vllm.proof.prompts import vocabulary_of, with_other_beginning
from truing.engines.vllm.proof.scores import (
    Turn,
    agreeing_share,
    distance,
    largest,
    row_scores,
    tolerance_of,
    turn_scores,
)
from truing.engines.vllm.publication import Publication
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams

GENERATE = "/inference/v1/generate"
"""vLLM's endpoint that takes ids and returns ids."""

Generate = Callable[[dict[str, Any]], dict[str, Any]]
"""From a request to its answer."""


class Start(NamedTuple):
    """What a server that has started is proven with besides."""

    prompt: Tensor  # a long one
    # the answer to a probe of its base before it loaded anything; may be []
    held: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Proof:
    """Compares a server with a publication that it has loaded."""

    client: VllmClient
    generate: Generate  # returns the answer to a request for a turn, with expert routes if there are any
    model: str  # its name of the base model
    publication: Publication
    policy: nn.Module  # with the published weights
    params: SamplingParams  # the declared ones
    logprobs: int  # of each token, to ask for
    start: Start | None  # of a server that has proven nothing since it started
    proven: Publication | None  # what it was proven to hold before

    def receipt(self) -> Receipt:
        """Compare all; return the receipt, and set the server's version.

        Raises:
            PublicationError: It computes something else.
            NonFiniteError: It computes NaN.
        """
        publication = self.publication
        layers = self._compare_layers()
        turns = self._sample(self._prompts())  # before rows are scored: a NaN is named with its token
        rows = self._compare_rows()
        compared = self._compare_turns(turns, rows["largest"])
        if self.start:
            compared["seeded"] = self._compare_start(turns, rows["largest"])
        self.client.post("/update_weight_version", {"new_version": publication.name})
        return {
            "version": publication.version,
            "trainer": publication.weight_digest,
            "sent": publication.sent_digest,
            "surviving": publication.surviving,
            "layers": layers,
            "rows": rows,
            "turns": compared,
        }

    def _prompts(self) -> list[Tensor]:
        return [*self.publication.prompts, *([self.start.prompt] if self.start else [])]

    def _compare_layers(self) -> dict[str, Any]:
        """Return the receipt of the layers; the base below an adapter is the one that was proven before."""
        publication = self.publication

        @cache
        def changed(words: str) -> Expected:
            return expected_responses(self.policy, FORMATS[words], publication.seed)

        held = held_before(self.start.held, publication.expected) if self.start else []
        others = [*publication.other_weights(), *held]
        answer = read_probe(probe(self.client, publication), publication.expected)
        comparison = Comparison(answer, publication.expected, publication.dtype, others, changed)
        with _changed_since(self.proven) if publication.adapter and self.proven else nullcontext():
            base = comparison.base()
        return base | comparison.adapter()

    def _compare_rows(self) -> dict[str, Any]:
        """Return the receipt of the rows."""
        policy, publication = self.policy, self.publication
        share = agreeing_share(publication.dtype, mixture=bool(publication.expected.experts))
        scored = self._scored_rows()
        tolerance = tolerance_of(
            largest(scored - publication.scores, share),
            publication.dtype,
            policy,
            lambda: row_scores(policy, publication.rows),
        )
        others = publication.other_scores()
        return compare_rows(scored, publication.scores, others, tolerance, self._scored_rows, share)

    def _compare_turns(self, turns: Sequence[Turn], rounding: float) -> dict[str, Any]:
        """Return the receipt of sampled turns; ``rounding`` is how far rows differ, nats."""
        receipt = self._compare_scores(turns, rounding)
        # near a tie the base of a mixture may take the engine's expert, and the policy another one
        is_dense = not self.publication.expected.experts
        if is_dense and self.publication.adapter and self.publication.dtype is not torch.float32:
            assert isinstance(self.policy, PeftModel)
            check_adapted(self.policy, turns, self.params, self.publication.dtype)
        if self.params.truncates_support:
            compare_supports(self.policy, turns, self.params, self._tolerance(turns))
        return receipt

    def _compare_start(self, turns: Sequence[Turn], rounding: float) -> bool:
        """Compare further turns of a server that has started; return whether it follows seeds."""
        second = self._sample(self._prompts(), "again")  # its prefix cache holds the prompts now
        self._compare_scores(second, rounding, "again")
        check_drawn(self.policy, turns, second, self.params)
        prompts = self.publication.prompts
        if self.publication.dtype is not torch.float32:  # there a cut prompt is beyond rounding
            changed = self._sample([*prompts, with_other_beginning(self._prompts()[-1])])
            compare_beginnings(self.policy, turns[-1], changed[-1], self.params)
        return follow_seeds(turns, self._sample(prompts))

    def _compare_scores(self, turns: Sequence[Turn], rounding: float, series: str = "") -> dict[str, Any]:
        """Return the receipt of the log-probabilities of the turns of a series."""
        tolerance = self._tolerance(turns)
        uncached = partial(self._sample, self._prompts(), series, cache_salt=uuid4().hex)
        return compare_turns(self.policy, turns, self.params, tolerance, uncached, rounding)

    def _tolerance(self, turns: Sequence[Turn]) -> float:
        """Return the nats by which rounding explains other log-probabilities of turns."""
        policy, params = self.policy, self.params
        found = distance(policy, turns, params)
        return tolerance_of(found, self.publication.dtype, policy, lambda: turn_scores(policy, turns, params))

    def _scored_rows(self) -> Tensor:
        """Return the engine's log-probabilities of the rows.

        They are scored one by one: with an adapter, vLLM 0.32 fails on scored prompts of several requests in
        flight.
        """
        return torch.cat([self._row_logprobs(row) for row in self.publication.rows])

    def _row_logprobs(self, row: Tensor) -> Tensor:
        """Return the engine's log-probabilities of a row's tokens but the first: [T − 1]."""
        body = {"model": self._name, "token_ids": row.tolist(), "sampling_params": to_scoring()}
        return read_prompt_logprobs(self.client.post(GENERATE, body), row)

    def _sample(self, prompts: Sequence[Tensor], series: str = "", **options: Any) -> list[Turn]:
        """Return turns that the engine samples after the prompts at one time; each series has its seeds."""
        key = self.publication.version, self.publication.weight_digest, *([series] if series else [])
        requests = [Request(prompt, (*key, i)) for i, prompt in enumerate(prompts)]
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(partial(self._turn, **options), requests))

    def _turn(self, request: Request, **options: Any) -> Turn:
        """Return the turn that the engine samples for a request."""
        body = {**to_request(request, self.params, self._name, self.logprobs), **options}
        answer = self.generate(body)
        return request, read_completion(
            answer,
            request,
            body["request_id"],
            self.params,
            version=None,
            weight_digest="",
            vocabulary=vocabulary_of(self.policy),
        )

    @property
    def _name(self) -> str:
        return self.publication.adapter or self.model


def probe(client: VllmClient, publication: Publication, base: bool = True) -> list[dict[str, Any]]:
    """Return what each worker of a server computes with; ``base``: not with the adapter alone."""
    return client.call_workers(
        "truing_probe", seed=publication.seed, adapter=bool(publication.adapter), base=base
    )


def check_kept(client: VllmClient, proven: Publication) -> None:
    """Raise unless a server still computes with what was proven last, before something else is loaded.

    A base below an adapter stays: the next proof compares it.

    Raises:
        PublicationError: Its weights have changed since, and answers were sampled with them.
    """
    probes = probe(client, proven, base=not proven.adapter)
    with _changed_since(proven):
        answer = read_probe(probes, proven.expected)
        comparison = Comparison(answer, proven.expected, proven.dtype, proven.other_weights())
        comparison.adapter() if proven.adapter else comparison.base()


@contextmanager
def _changed_since(proven: Publication) -> Iterator[None]:
    """Say in a failed proof that the weights were right before, and that answers may not be theirs."""
    try:
        yield
    except PublicationError as error:
        raise PublicationError(
            f"weights of version {proven.version} were proven, and the engine changed them since:"
            f" {error.what}",
            got=error.got,
            expected=error.expected,
            remedy="answers of the last step may be those of other weights: `truing check RUN` says which"
            " steps they reached; restart the engine",
        ) from error
