"""`truing prove`: whether a server answers with the weights that it should have."""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truing.errors import RecipeError
from truing.terminal.say import say
from truing.utils.jsonl import dump_json

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
    outside: Annotated[
        bool, typer.Option("--outside", help="Compare log-probabilities even where layers can be compared.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if it could not be told, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the weights on disk with a server's layers, or from outside with its log-probabilities.

    Layers are compared where Truing is installed beside the server's vLLM. A key is read from OPENAI_API_KEY.
    Exit code 0: it has the expected weights, or it could not be told. 1: it does not.
    """
    from truing.engines.served.prove import prove

    texts = [line for line in rows.read_text(encoding="utf-8").splitlines() if line.strip()] if rows else []
    if rows is not None and not texts:
        raise RecipeError(f"{rows} has no text", expected="one a line")
    key = os.environ.get("OPENAI_API_KEY", "")
    proof = prove(
        url,
        weights,
        base=base,
        before=before,
        model=model,
        key=key,
        rows=texts,
        tokens=tokens,
        outside=outside,
    )
    if as_json:
        print(dump_json(_plain(proof)).decode())
    else:
        _print(url, proof)
    if proof.wrong or (strict and proof.said != "served"):
        raise typer.Exit(1)


def _plain(value: Any) -> Any:
    """Return a proof as mappings and lists, with the names of its numbers."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _print(url: str, proof: "ServerProof") -> None:
    """Print the verdict, then what it stands on."""
    verdict = "WRONG: " if proof.wrong else {"cannot tell": "CANNOT TELL: "}.get(proof.said, "")
    style = "bold red" if proof.wrong else STYLES[proof.said]
    say(f"{url} {proof.model}, from {proof.depth}: {verdict}{proof.text}", style)
    for line in proof.lines:
        say(f"  {line}", "bold red" if "other ids" in line else "")
    for each in proof.unseen:
        say(f"  not looked at: {each}", "yellow")
