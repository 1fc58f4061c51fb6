"""`truing prove`: whether a server answers with the weights that it should have."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from truing.errors import RecipeError
from truing.utils.format import escape_lines

if TYPE_CHECKING:
    from truing.engines.served.prove import ServerProof

STYLES = {"served": "bold green", "cannot tell": "bold yellow"}


def prove_server(  # noqa: PLR0913 — typer takes each option as an argument
    url: Annotated[str, typer.Argument(help="The address of a server: vLLM, trl vllm-serve, SGLang …")],
    weights: Annotated[str, typer.Option(help="What it should serve: a folder, or BASE+ADAPTER.")],
    base: Annotated[str, typer.Option(help="The weights before any training.")] = "",
    before: Annotated[str, typer.Option(help="The version before, to see stale weights.")] = "",
    model: Annotated[str, typer.Option(help="The name of the model or adapter at the server.")] = "",
    rows: Annotated[
        Path | None, typer.Option(help="Texts to score, one a line, like those of training.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=0, help="Tokens that WEIGHTS continues, to score too; more show less.")
    ] = 200,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if it could not be told, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the weights on disk with a server's log-probabilities; nothing is installed in the server.

    A key is read from OPENAI_API_KEY. Exit code 0: it serves them, or it could not be told. 1: it does not.
    """
    from truing.engines.served.prove import prove

    texts = [line for line in rows.read_text(encoding="utf-8").splitlines() if line.strip()] if rows else []
    if rows is not None and not texts:
        raise RecipeError(f"{rows} has no text", expected="one a line")
    key = os.environ.get("OPENAI_API_KEY", "")
    proof = prove(url, weights, base=base, before=before, model=model, key=key, rows=texts, tokens=tokens)
    if as_json:
        print(json.dumps(asdict(proof) | {"seen": _json(proof)}, ensure_ascii=False))
    else:
        _print(url, proof)
    if proof.wrong or (strict and proof.said != "served"):
        raise typer.Exit(1)


def _json(proof: "ServerProof") -> dict[str, Any]:
    seen = proof.seen
    return seen._asdict() | {"shares": {name: share._asdict() for name, share in seen.shares.items()}}


def _print(url: str, proof: "ServerProof") -> None:
    """Print the verdict, then what it stands on."""
    console = Console(highlight=False)

    def say(text: str, style: str = "") -> None:
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)

    verdict = {"served": "", "cannot tell": "CANNOT TELL: "}.get(proof.said, "WRONG: ")
    say(f"{url} {proof.model}: {verdict}{proof.text}", STYLES.get(proof.said, "bold red"))
    for name, median in proof.seen.median.items():
        say(f"  {name}: a median difference of {median:.2g} nats over {proof.seen.tokens} tokens")
    for name, share in proof.seen.shares.items():
        say(
            f"  from {name} (0) to the expected weights (1) the server is at {share.of_update:.3f}"
            f" ± {share.error:.3f}; they differ by {share.change:.2g} nats, and {share.shown:.2g} would show"
        )
    say(f"  {proof.template}", "bold red" if "other ids" in proof.template else "")
    if not proof.seen.shares:
        say("  not looked at: whether it serves other weights; give --base and --before", "yellow")
