"""`truing prove`: which weights an engine has, compared with weights on disk, from inside or from outside."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from truing.engines.served.endpoint import Endpoint, PluginMissingError
from truing.engines.served.inside import prove_inside
from truing.engines.served.inside_proof import InsideProof
from truing.engines.served.offline_engine import OfflineEngine
from truing.engines.served.outside import TEXTS, OutsideProof, prove_outside
from truing.errors import EngineError

ServerProof = InsideProof | OutsideProof
"""What an engine was seen to have; ``depth`` says from where."""


def prove(  # noqa: PLR0913 — each is a fact of another kind
    server: Any,
    weights: str,
    *,
    base: str = "",
    before: str = "",
    model: str = "",
    key: str = "",
    rows: Sequence[str] = (),
    tokens: int = 200,
    outside: bool = False,
) -> ServerProof:
    """Compare the weights on disk with what a server or a ``vllm.LLM`` has.

    Where Truing is installed beside vLLM and its workers can be called, each layer is compared, from inside.
    Else log-probabilities are, from outside.

    Weights are a model by name, a folder, or BASE+ADAPTER; those of an adapter have its base as ``base``.

    Args:
        server: an ``LLM``, or the address of a server: vLLM, `trl vllm-serve`, SGLang, or one with OpenAI's
            legacy ``echo``.
        weights: what it should have.
        base: the weights before any training.
        before: the version before, to see stale weights.
        model: the name of the model or adapter at the server; by default its only one.
        key: of the server's API.
        rows: texts to score from outside, better like those of training; by default some of several kinds.
        tokens: that the expected weights continue, to score too; with more, a smaller change shows.
        outside: compare log-probabilities even where layers can be compared.

    Raises:
        EngineError: no server answers there, or it gives no log-probabilities of given tokens.
        ModelError: weights cannot be read.
    """
    named = {"the base": base or ("+" in weights and weights.partition("+")[0]), "the version before": before}
    others = {name: where for name, where in named.items() if where}
    with closing(engine_of(server, model, key)) as engine:
        found = engine.choose_model()
        why = "--outside" if outside else ""
        if not outside:
            try:
                return prove_inside(engine, found, weights, others)
            except PluginMissingError as error:
                why = error.what
        return prove_outside(engine, found, weights, others, rows or TEXTS, tokens, why)


def engine_of(server: Any, model: str = "", key: str = "") -> Endpoint | OfflineEngine:
    """Return an engine that can be proven: a server by its address, or a ``vllm.LLM``."""
    if isinstance(server, str):
        return Endpoint(server, model, key)
    if not all(callable(getattr(server, name, None)) for name in ("collective_rpc", "generate")):
        raise EngineError(
            "this engine cannot be proven",
            got=type(server).__name__,
            expected="the address of a server, or a vllm.LLM",
            remedy="start the engine as a server, and give its address",
        )
    return OfflineEngine(server)
