"""The proof of each weight sync with the trainer's help: an engine's layers beside the trainer's weights.

The first proof compares every layer, later ones a part, so that each layer's turn comes again and again. No
weights are kept for it, only what layers answered: responses to one vector.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import nn

from truing.engines.served.inside import SEED, formats_of, hello_of
from truing.engines.served.inside_proof import InsideProof, hidden_layers
from truing.engines.served.prove import engine_of
from truing.engines.served.seen_layers import Seen, see
from truing.engines.served.use import BASE, DOUBT
from truing.engines.vllm.proof.expected_layers import Expected, as_dtype, expected_responses
from truing.engines.vllm.proof.layer_answers import read_probe
from truing.errors import InvalidValueError, ModelError
from truing.utils.rng import permutation

DRAWN_KINDS = ("linear", "tables", "experts")
"""What a worker's answer has of the layers that are drawn."""


class SyncProof:
    """Compares the layers of a vLLM engine with a trainer's weights after each weight sync.

    ``proof = SyncProof(llm)`` once, ``proof(model)`` after each sync: ``proof(model).wrong``.
    """

    def __init__(self, server: Any, share: float = 0.1, *, model: str = "", key: str = "") -> None:
        """Enter an engine.

        Args:
            server: a ``vllm.LLM``, or the address of a server, as ``truing.prove`` takes it.
            share: of the layers that a proof compares, in (0, 1].
            model: the name of the model or adapter at the server; by default its only one.
            key: of the server's API.

        Raises:
            EngineError: Truing is not beside its vLLM, or no server answers.
        """
        if not 0 < share <= 1:
            raise InvalidValueError("share is not a share of the layers", got=share, expected="0 < share ≤ 1")
        self._engine, self._share = engine_of(server, model, key), share
        self._model = self._engine.choose_model()
        self._names: dict[str, list[str]] = {}  # of the engine's layers: what they are in the checkpoint
        self._proofs = 0
        self._first = self._before = Expected()

    def __call__(self, policy: nn.Module) -> InsideProof:
        """Compare the engine with the weights of a policy; those of a peft adapter are merged or apart in it.

        Raises:
            ModelError: The weights are divided among processes.
            EngineError: The engine does not answer.
        """
        _check_whole(policy)
        hello = hello_of(self._engine)
        now, following = self._turn(self._proofs), self._turn(self._proofs + 1)
        probes = self._engine.call_workers(
            "truing_probe", seed=SEED, adapter=bool(hello["lora"]), base=True, held=True, layers=now
        )
        merged, dtype = not probes[0]["delta"], getattr(torch, hello["dtype"])
        layers = None if now is None or following is None else self._in_checkpoint([*now, *following])
        expected = expected_responses(policy, as_dtype(dtype), SEED, layers=layers, merged=merged)
        others = {"the first version": self._first, "the version before": self._before}
        answer = read_probe(probes, expected, None if now is None else self._first)
        seen = see(answer, expected, others, dtype, was_merged=merged)
        causes = seen.causes(expected, others, formats_of(policy, layers, merged=merged))
        proof = self._proof(hello, seen, causes, adapter=not merged)
        if now is None:
            proof = replace(proof, missing=seen.missing(expected))
        else:
            proof = replace(proof, later=len(self._names) - len(now))
        self._remember(expected, probes[0])
        return proof

    def _proof(
        self, hello: dict[str, Any], seen: Seen, causes: dict[str, list[str]], *, adapter: bool
    ) -> InsideProof:
        """Return what the layers say, and whether the requests since the last proof named the adapter."""
        unused = adapter and self._proofs and hello["asked"] == BASE and not seen.is_wrong
        return InsideProof(
            said="cannot tell" if unused else seen.said,
            text=f"{seen.text}; but {DOUBT}" if unused else seen.text,
            model=self._model,
            dtype=hello["dtype"],
            layers=seen.compared,
            readable=seen.readable,
            hidden=len(hidden_layers(seen.judged)),
            adapter=adapter,
            causes=causes,
            shares=seen.shares,
            defaults={name: each for name, each in hello["defaults"].items() if name != "max_tokens"},
            logprobs_mode=hello["logprobs_mode"],
        )

    def _remember(self, expected: Expected, probe: dict[str, Any]) -> None:
        """Keep the responses, for the next proofs, and at first the engine's layers."""
        if not self._names:
            self._first = expected
            answers = {name: each for kind in DRAWN_KINDS for name, each in probe[kind].items()}
            self._names = {name: each.get("parts", [name]) for name, each in answers.items()}
        self._before, self._proofs = expected, self._proofs + 1

    def _turn(self, proof: int) -> list[str] | None:
        """Return the layers that a proof compares, by the engine's names; None: all."""
        if not proof or not self._names or self._share == 1:
            return None
        turns = ceil(1 / self._share)
        cycle, turn = divmod(proof - 1, turns)
        names = sorted(self._names)
        return [names[i] for i in permutation(len(names), "sync proof", cycle)[turn::turns]]

    def _in_checkpoint(self, names: Sequence[str]) -> set[str]:
        return {part for name in names for part in self._names[name]}


def _check_whole(policy: nn.Module) -> None:
    """Raise if a weight is divided among processes, as by FSDP or ZeRO-3."""
    for name, parameter in policy.named_parameters():
        if hasattr(parameter, "full_tensor") or not parameter.numel():
            raise ModelError(
                "the weights of this model are divided among processes",
                got=f"{name}: {type(parameter).__name__} with {parameter.numel()} elements here",
                expected="whole weights",
                remedy="gather them around the call, as the trainer does around its weight sync",
            )
