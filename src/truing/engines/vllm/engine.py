"""The engine that samples with vLLM: one or several servers, which Truing starts or finds running."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from truing.config import Recipe
from truing.distributed.ranks import Ranks
from truing.engines.base import Completion, Draws, Publish, Receipt, Request, joint_receipt
from truing.engines.vllm.client import ServerLostError
from truing.engines.vllm.completion_response import read_completion
from truing.engines.vllm.params import check_expressible, to_request
from truing.engines.vllm.placed_servers import placed_engines
from truing.engines.vllm.policy_copy import PolicyCopy
from truing.engines.vllm.proof.prompts import NEW_TOKENS, vocabulary_of
from truing.engines.vllm.publication import Publication, prepare, weights_name
from truing.engines.vllm.running_batch import VllmBatch
from truing.engines.vllm.server import Server, open_servers
from truing.engines.vllm.weights_folder import WeightsFolder
from truing.errors import EngineError
from truing.types.sampling_params import SamplingParams
from truing.utils.one_thread import one_thread
from truing.utils.rng import seed_of


class VllmEngine:
    """Samples with vLLM servers that hold equal weights; an episode's turns go to one server.

    ``version`` and ``weight_digest`` name the weights that were proven last.
    """

    def __init__(
        self, recipe: Recipe, servers: Sequence[Server], context_length: int, folder: WeightsFolder
    ) -> None:
        self.cfg, self.servers, self.context_length = recipe.engine, servers, context_length
        # rounding changes who wins: it is measured in what the trainer computes in
        alike = servers[0].facts.dtype in (torch.float32, getattr(torch, recipe.model.dtype))
        self.draws: Draws = "race" if alike else "unknown"
        self.version, self.weight_digest = 0, ""
        self._folder = folder  # of this engine alone, within engine.exchange
        self._prepared: Publication | None = None  # the newest
        self._publication: Publication | None = None  # that the servers hold
        self._policy: nn.Module | None = None  # with these weights, as long as they sample
        self._copy: PolicyCopy | None = None  # of the policy, if it trains while they sample
        self._sampling_params = SamplingParams()  # of training, to prove them too
        self._receipt: Receipt = {}
        self._losses = 0
        self._closed = self._asleep = False
        self._incidents: list[str] = []
        self._said: set[str] = set()  # incidents that are said once

    def check_params(self, params: SamplingParams) -> None:
        """Raise unless every server samples with these parameters, and has room for them."""
        for server in self.servers:
            check_expressible(params, server.facts.max_logprobs)
        params.max_prompt_length(self.context_length)

    @property
    def returns_routes(self) -> bool:
        """Whether turns have the experts that their tokens took."""
        return all(server.returns_routes for server in self.servers)

    def prove_with(self, params: SamplingParams) -> None:
        """Sample with these parameters when a publication is proven; not greedily, since ties may differ."""
        self._sampling_params = replace(
            params,
            temperature=params.temperature or 1.0,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=min(params.min_new_tokens, NEW_TOKENS),
        )

    def publish(self, policy: nn.Module, version: int, weight_digest: str) -> Receipt:
        """Send the trained weights to each server and prove them; weights that are proven are not sent again.

        Raises:
            PublicationError: A server computes something else.
            EngineError: A server cannot be reached.
        """
        publication = self._prepare(policy, version, weight_digest)
        with one_thread():  # vLLM's CPU build spins for a second after each answer
            return self._load(publication, policy)

    def prepare(self, policy: nn.Module, version: int, weight_digest: str) -> Publish:
        """Copy the trained weights; return what sends them and proves them with the copy."""
        if self._copy is None:
            self._copy = PolicyCopy(policy)
        policy_copy, publication = self._copy, self._prepare(policy, version, weight_digest)
        return lambda: self._load(publication, policy_copy.holding(publication))

    def _prepare(self, policy: nn.Module, version: int, weight_digest: str) -> Publication:
        """Return the publication of these weights; the newest one again if they are its."""
        newest = self._prepared
        if newest is None or (version, weight_digest) != (newest.version, newest.weight_digest):
            folder = self._folder.path / weights_name(version, weight_digest)
            dtype = self.servers[0].facts.dtype
            self._prepared = prepare(policy, version, weight_digest, folder, dtype, newest)
        assert self._prepared is not None
        return self._prepared

    def _load(self, publication: Publication, policy: nn.Module) -> Receipt:
        """Let each server load and prove a publication, unless it holds it; return the receipt.

        ``policy`` has its weights until the next publication: a server that is replaced is proven with it.
        """
        before, self._policy = self._publication, policy
        if publication is before and not self._asleep:
            return self._receipt
        if self._asleep:
            for server in self.servers:
                server.wake_up()
            self._asleep = False
        self._publication = publication
        if (text := self._untold(publication)) and text not in self._said:
            self._said.add(text)
            self._incidents.append(text)
        receipts = [self._loaded(server) for server in self.servers]
        self.version, self.weight_digest = publication.version, publication.weight_digest
        self._receipt = joint_receipt([{"engine": "vllm", "servers": 1, **each} for each in receipts])
        if before is not None and before.folder != publication.folder:
            shutil.rmtree(before.folder, ignore_errors=True)  # what stays is removed with the engine's folder
        return self._receipt

    def _untold(self, publication: Publication) -> str:
        """Return what the proof of a publication cannot tell, as long as the adapter changes too little."""
        if publication.tells_adapter:
            return ""
        return (
            "whether the engine applies the adapter could not be told: it is zero, or nearly so, and the base"
            " answers alike; the publication after the first step that moves it is tested again"
        )

    def _loaded(self, server: Server) -> Receipt:
        """Let a server load and prove the publication; a lost server is replaced."""
        assert self._publication is not None
        assert self._policy is not None
        while True:
            try:
                receipt = server.publish(self._publication, self._policy, self._sampling_params)
            except ServerLostError as error:
                self._replace(server, error)
                continue
            if not receipt["turns"].get("seeded", True):
                self._incidents.append(
                    f"the vLLM server {server.url} samples other ids with equal seeds: a run cannot be"
                    " repeated, and audits cannot replay its draws (SMP009)"
                )
            return receipt

    def _replace(self, server: Server, error: ServerLostError) -> None:
        """Start a lost server again, or wait for one that others start; raise after too many losses."""
        self._losses += 1
        if self._closed:
            raise error
        if self._losses > self.cfg.restarts:
            raise EngineError(
                f"the vLLM server {server.url} is lost, after {self._losses - 1} losses before: {error.what}",
                got=error.got,
                expected=f"at most {self.cfg.restarts} losses in a run, engine.restarts",
                remedy="see the server's log for why it ends",
            ) from error
        try:
            server.restart()
        except ServerLostError as again:
            self._replace(server, again)
        else:
            self._incidents.append(f"lost the vLLM server {server.url} ({error.got}); it runs again")

    def runs(self, server: Server) -> bool:
        """Whether a server answers, and holds the published weights."""
        return server.holds(self._publication)

    def recover(self, server: Server, error: ServerLostError) -> None:
        """Replace a lost server, and prove the published weights again."""
        if self.runs(server):
            return  # another request noticed the loss before
        self._replace(server, error)
        self._loaded(server)
        self._incidents[-1] += f", and weights of version {self.version} are proven again"

    def server_of(self, request: Request) -> Server:
        """Return the server of a request: one for all turns of an episode, whose prefix it caches."""
        return self.servers[seed_of(*(request.episode or request.rng_key)) % len(self.servers)]

    def ask(self, request: Request, params: SamplingParams) -> Completion:
        """Return one completion; blocks."""
        server = self.server_of(request)
        assert self._publication is not None
        assert self._policy is not None
        model = self._publication.adapter or server.facts.model
        body = to_request(request, params, model, server.logprobs(params))
        try:
            answer = server.generate(body)
            return read_completion(
                answer,
                request,
                body["request_id"],
                params,
                self.version,
                self.weight_digest,
                vocabulary_of(self._policy),
            )
        except ServerLostError:
            raise
        except EngineError as error:
            if self.runs(server):
                raise
            raise ServerLostError(
                f"another process answers at {server.url} than the one whose weights were proven",
                got=error.got,
                expected=f"the server that holds version {self.version}",
                remedy=error.remedy,
            ) from error

    @contextmanager
    def running_batch(self, sampling_params: SamplingParams) -> Iterator[VllmBatch]:
        """Return a batch that samples with these parameters; what is unfinished at its end is aborted."""
        self.check_params(sampling_params)
        batch = VllmBatch(self, sampling_params, self.cfg.max_requests * len(self.servers))
        try:
            yield batch
        finally:
            if batch.close():
                for server in self.servers:
                    server.abort()

    def reset_prefix_cache(self) -> None:
        """Do nothing: a publication drops what servers cache, and until then it is valid."""

    def release_memory(self) -> None:
        """Let the servers sleep, if the recipe says so; a publication wakes them and is proven again."""
        if self.cfg.sleep:
            for server in self.servers:
                server.sleep()
            self._asleep = True

    def take_incidents(self) -> list[str]:
        """Return what happened since the last call, a sentence each."""
        incidents, self._incidents = self._incidents, []
        return incidents

    def close(self) -> None:
        """Stop the servers that Truing started, and remove published weights."""
        self._closed = True
        for server in self.servers:
            server.close()
        self._folder.remove()


def open_vllm(
    recipe: Recipe, model: Path, context_length: int, device: torch.device, ranks: Ranks
) -> VllmEngine:
    """Start or find the servers of a rank, and check what they are.

    Args:
        recipe: with ``engine.kind = "vllm"``.
        ranks: share the servers of the recipe; without any, each starts one.
        model: folder of the model.
        context_length: of the model, tokens; servers may have less.
        device: of the trainer.
    """
    if recipe.episode.grammar != "off":
        raise EngineError(
            "vLLM does not return which tokens a grammar allows, so the trainer cannot score them",
            got=f'episode.grammar = "{recipe.episode.grammar}"',
            remedy='set episode.grammar = "off", or engine.kind = "local"',
        )
    placed = placed_engines()
    exchange = Path(recipe.engine.exchange).expanduser() if recipe.engine.exchange else placed.exchange
    folder = WeightsFolder(exchange)
    try:
        urls = (placed.servers or recipe.engine.servers)[ranks.rank :: ranks.size]
        servers = open_servers(recipe, urls, model, context_length, device)
    except BaseException:
        folder.remove()
        raise
    shortest = min(server.context_length for server in servers)
    return VllmEngine(recipe, servers, shortest, folder)
