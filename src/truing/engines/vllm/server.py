"""A vLLM server: started by Truing or found running, what it is, and which weights it holds."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truing.config import Recipe
from truing.engines.base import Receipt
from truing.engines.vllm.client import START, ServerLostError, VllmClient, wait_until_alive
from truing.engines.vllm.moe import begin_routes, with_routes
from truing.engines.vllm.params import support_logprobs
from truing.engines.vllm.proof.prompts import long_prompt
from truing.engines.vllm.proof.prove import GENERATE, Proof, Start, check_kept, probe
from truing.engines.vllm.publication import Publication, load
from truing.engines.vllm.server_facts import ServerFacts, check_server
from truing.engines.vllm.server_process import (
    CHILD_SERVER,
    ServerProcess,
    adapter_rank,
    free_port,
    server_command,
    server_variables,
    visible_gpus,
)
from truing.errors import EngineError, PublicationError
from truing.types.sampling_params import SamplingParams

StartProcess = Callable[[], ServerProcess]


class Server:
    """A server and the weights that it holds; ``start_process`` is given if Truing starts it."""

    def __init__(
        self, recipe: Recipe, url: str, context_length: int, start_process: StartProcess | None
    ) -> None:
        self.cfg, self.url, self._start_process = recipe.engine, url, start_process
        self._lora_rank = adapter_rank(recipe)
        self._process: ServerProcess | None = None
        self.client = VllmClient(url, self.cfg.timeout, self.cfg.max_requests)
        self._adapters: Sequence[str] = ()  # that it has loaded
        self._proven: Publication | None = None  # the publication that was proven last
        self._is_new = True  # since its start nothing was proven
        try:
            self.facts = self._start()
        except BaseException:
            self.close()
            raise
        self.context_length = min(self.facts.context_length, context_length)

    def logprobs(self, params: SamplingParams) -> int:
        """Return how many log-probabilities of a token to ask for."""
        return support_logprobs(params, self.facts.dtype, self.facts.max_logprobs)

    @property
    def returns_routes(self) -> bool:
        """Return whether its turns have the experts that tokens took."""
        return self.facts.returns_routes or self._takes_routes

    def generate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request for a turn, with expert routes if the server has any."""
        if not self._takes_routes:
            return self.client.post(GENERATE, request)
        answer = self.client.post(GENERATE, request)
        return with_routes(self.client, request["request_id"], answer)

    def _start(self) -> ServerFacts:
        """Start the process if it is ours; wait for the server, and return what it is."""
        if self._start_process is not None:
            self._process = self._start_process()
            self._process.wait_until_ready(self.cfg.timeout)
        else:
            wait_until_alive(self.client, self.cfg.timeout)
        facts = check_server(self.client)
        dtype = str(facts.dtype).removeprefix("torch.")
        if self.cfg.dtype not in ("auto", dtype):
            raise EngineError(
                f"the vLLM server {self.url} runs in another dtype",
                got=dtype,
                expected=f"{self.cfg.dtype}, engine.dtype",
                remedy="`truing engine start RECIPE` starts it with --dtype; or change engine.dtype",
            )
        held = facts.max_lora_rank
        if held < self._lora_rank:
            raise EngineError(
                f"the vLLM server {self.url} cannot hold the adapter",
                got=f"--max-lora-rank {held}" if held else "a server without --enable-lora",
                expected=f"at least {self._lora_rank}, lora.rank",
                remedy=START,
            )
        self._adapters, self._proven, self._is_new = facts.adapters, None, True
        self._takes_routes = begin_routes(self.client, facts, self._lora_rank)
        return facts

    def restart(self) -> None:
        """Start it again; one that Truing did not start is waited for."""
        if self._process is not None:
            self._process.stop()
        before, self.facts = self.facts, self._start()
        if self.facts.dtype != before.dtype or self.facts.context_length < self.context_length:
            raise EngineError(
                f"the vLLM server {self.url} came back as another one",
                got=f"{self.facts.dtype}, a context of {self.facts.context_length} tokens",
                expected=f"{before.dtype}, a context of {self.context_length} tokens",
                remedy="start it as before",
            )

    def publish(
        self, publication: Publication, policy: nn.Module, sampling_params: SamplingParams
    ) -> Receipt:
        """Load a publication, prove it, and return the receipt.

        A server that has started is proven further; another one must still hold what was proven before.
        """
        start = self._start_of_proof(publication, policy) if self._is_new else None
        with self._named():
            if self._proven is not None:
                check_kept(self.client, self._proven)
            load(self.client, publication, self._adapters)
            self._adapters = [publication.adapter] if publication.adapter else []
            proof = Proof(
                self.client,
                self.generate,
                self.facts.model,
                publication,
                policy,
                sampling_params,
                self.logprobs(sampling_params),
                start,
                self._proven,
            )
            receipt = proof.receipt()
        self._proven, self._is_new = publication, False
        return receipt

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name this server in a failed proof: there may be several."""
        try:
            yield
        except PublicationError as error:
            got = f"{error.got}, at {self.url}"
            raise PublicationError(
                error.what, got=got, expected=error.expected, remedy=error.remedy
            ) from error

    def _start_of_proof(self, publication: Publication, policy: nn.Module) -> Start:
        """Return what a server that has started is proven with besides, before it loads anything."""
        prompt = long_prompt(policy, self.context_length)
        return Start(prompt, [] if publication.adapter else probe(self.client, publication))

    def sleep(self) -> None:
        """Free the server's memory; weights that are sent again at each publication are dropped."""
        self.client.post(f"/sleep?level={1 if self._lora_rank else 2}")
        self._proven = None

    def wake_up(self) -> None:
        """Take the memory again.

        Raises:
            EngineError: The server goes on sleeping.
        """
        status = self.client.post("/wake_up").get("status")
        if status != "awake":
            raise EngineError(
                f"the vLLM server {self.url} does not wake up",
                got=f"status {status}",
                expected="awake",
                remedy="its log has the cause, such as memory that the trainer holds",
            )

    def holds(self, publication: Publication | None) -> bool:
        """Whether the server is the one that proved this publication, and answers."""
        if publication is None or self._proven is not publication:
            return False
        try:
            return self.client.call_worker("truing_hello").get("pid") == self.facts.pid
        except ServerLostError:
            return False

    def abort(self) -> None:
        """Abort all requests of a server that answers."""
        with suppress(ServerLostError):
            self.client.post("/abort_requests", {})

    def close(self) -> None:
        """Close the connections, and stop the process if it is ours."""
        self.client.close()
        if self._process is not None:
            self._process.stop()


def open_servers(
    recipe: Recipe, urls: Sequence[str], model: Path, context_length: int, device: torch.device
) -> Sequence[Server]:
    """Return the servers at these addresses; without any, one is started on the trainer's device."""
    if urls:
        return _find_servers(recipe, urls, context_length)
    port = free_port()
    command = server_command(recipe, model, device.type, port, CHILD_SERVER)
    workers = recipe.engine.tensor_parallel
    variables = server_variables(device.type, workers) | visible_gpus(device, workers)
    url, log = f"http://127.0.0.1:{port}", Path(tempfile.mkstemp(prefix="truing-vllm-", suffix=".log")[1])
    start = partial(ServerProcess, command, variables, url, log)
    return [Server(recipe, url, context_length, start)]


def _find_servers(recipe: Recipe, urls: Sequence[str], context_length: int) -> Sequence[Server]:
    """Return the running servers at these addresses; close them if one of them cannot be used."""
    servers: list[Server] = []
    try:
        for url in urls:
            servers.append(Server(recipe, url, context_length, None))
        dtypes = {str(server.facts.dtype) for server in servers}
        if len(dtypes) > 1:
            raise EngineError("the vLLM servers have different dtypes", got=sorted(dtypes), expected="one")
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers
