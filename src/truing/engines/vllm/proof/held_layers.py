"""What a server's layers compute with, asked for by a probe: is it the publication, and is it still?"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.proof.probe import Changed, Comparison, Earlier
from truing.engines.vllm.proof.probe_answer import read_probe
from truing.engines.vllm.publication import Publication
from truing.errors import PublicationError


def probe(client: VllmClient, publication: Publication, base: bool = True) -> list[dict[str, Any]]:
    """Return what each worker of a server computes with; ``base``: not with the adapter alone."""
    return client.call_workers(
        "truing_probe", seed=publication.seed, adapter=bool(publication.adapter), base=base
    )


def compare_layers(
    client: VllmClient,
    publication: Publication,
    others: Earlier,
    changed: Changed,
    proven: Publication | None,
) -> dict[str, Any]:
    """Return the receipt of a server's layers.

    Args:
        client: of the server.
        publication: what it has loaded.
        others: other weights that it may hold.
        changed: returns the responses of the trainer's weights as they may have become.
        proven: what it was proven to hold before; the base below an adapter is the same.

    Raises:
        PublicationError: A layer computes with other weights.
    """
    answer = read_probe(probe(client, publication), publication.expected)
    comparison = Comparison(answer, publication.expected, publication.dtype, others, changed)
    with _changed_since(proven) if publication.adapter and proven else nullcontext():
        base = comparison.base()
    return base | comparison.adapter()


def check_kept(client: VllmClient, proven: Publication) -> None:
    """Raise unless a server still computes with what was proven last, before something else is loaded.

    A base below an adapter stays: ``compare_layers`` compares it.

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
            " updates they reached; restart the engine",
        ) from error
