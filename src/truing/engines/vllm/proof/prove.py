"""The proof of a publication: does a server sample with the weights that were sent to it?

Sent weights say nothing of loaded ones. So three things are compared with the trainer: each layer's response
to a vector, through the engine's own kernel; log-probabilities of fixed rows; and log-probabilities of
sampled turns under the declared sampling parameters. The server's version is counted up afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor, nn

from truing.engines.base import Receipt, Request
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.engines.vllm.params import to_request, to_scoring
from truing.engines.vllm.proof.canary import (
    OTHER_APPLICATION,
    OTHER_FORWARD,
    TOLERANCE,
    agreeing_share,
    compare_rows,
    largest,
    other_forwards,
    row_scores,
    tolerance_of,
    vocabulary_of,
)
from truing.engines.vllm.proof.canary_turns import LEFT, Again, check_adapted, compare_turns, nearest
from truing.engines.vllm.proof.changed_weights import CHANGES
from truing.engines.vllm.proof.cut_prompts import compare_beginnings, with_other_beginning
from truing.engines.vllm.proof.expected_responses import Expected, expected_responses
from truing.engines.vllm.proof.held_layers import compare_layers
from truing.engines.vllm.proof.probe_answer import held_before
from truing.engines.vllm.proof.repeated_turns import compare_repeated, follow_seeds
from truing.engines.vllm.proof.supports import compare_supports
from truing.engines.vllm.proof.turn_causes import Turn, distance, other_prompts, turn_scores
from truing.engines.vllm.publication import Publication
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
        rows = self._compare_rows(turns)
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
        """Return the receipt of the layers."""
        publication = self.publication

        @cache
        def changed(words: str) -> Expected:
            return expected_responses(self.policy, CHANGES[words], publication.seed, None)

        held = held_before(self.start.held, publication.expected) if self.start else []
        others = [*publication.other_weights(), *held]
        return compare_layers(self.client, publication, others, changed, self.proven)

    def _compare_rows(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """Return the receipt of the rows; ``turns`` may show why they differ."""
        policy, publication = self.policy, self.publication
        share = agreeing_share(publication.dtype, mixture=bool(publication.expected.experts))
        usual = TOLERANCE[str(publication.dtype).removeprefix("torch.")]
        scored = self._scored_rows()

        def otherwise() -> str:
            near = min(usual, LEFT * largest(scored - publication.scores, share))
            is_misread = distance(policy, turns, self.params) > usual
            return (
                (is_misread and nearest(other_prompts(policy, turns, self.params), near))
                or nearest(other_forwards(policy, publication.rows, scored), near)
                or (OTHER_APPLICATION if publication.adapter else OTHER_FORWARD)
            )

        tolerance = tolerance_of(
            largest(scored - publication.scores, share),
            publication.dtype,
            policy,
            lambda: row_scores(policy, publication.rows),
        )
        others = publication.other_scores()
        return compare_rows(
            scored, publication.scores, others, tolerance, self._scored_rows, share, otherwise
        )

    def _compare_turns(self, turns: Sequence[Turn], rounding: float) -> dict[str, Any]:
        """Return the receipt of sampled turns; ``rounding`` is how far rows differ, nats."""
        again = Again(
            lambda: self._sample(self._prompts(), cache_salt=uuid4().hex),
            self._turn,
            self._row_logprobs,
        )
        tolerance = self._tolerance(turns)
        receipt = compare_turns(self.policy, turns, self.params, tolerance, again, rounding)
        # near a tie the base of a mixture may take the engine's expert, and the policy another one
        is_dense = not self.publication.expected.experts
        if is_dense and self.publication.adapter and self.publication.dtype is not torch.float32:
            check_adapted(self.policy, turns, self.params, self.publication.dtype)
        if self.params.truncates_support:
            compare_supports(self.policy, turns, self.params, tolerance)
        return receipt

    def _compare_start(self, turns: Sequence[Turn], rounding: float) -> bool:
        """Compare further turns of a server that has started; return whether it follows seeds."""
        second = self._sample(self._prompts(), "again")
        compare_repeated(
            self.policy,
            turns,
            second,
            self.params,
            self._tolerance(second),
            lambda: self._sample(self._prompts(), "again", cache_salt=uuid4().hex),
            partial(self._compare_turns, rounding=rounding),
        )
        prompts = self.publication.prompts
        if self.publication.dtype is not torch.float32:  # there a cut prompt is beyond rounding
            changed = self._sample([*prompts, with_other_beginning(self._prompts()[-1])])
            compare_beginnings(self.policy, turns[-1], changed[-1], self.params)
        return follow_seeds(turns, self._sample(prompts))

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
