"""`truing engine start`: a vLLM server with the arguments that a recipe needs."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from truing.errors import RecipeError
from truing.terminal.say import say

app = typer.Typer(help="Start a vLLM server for recipes with engine.servers.", no_args_is_help=True)


@app.callback()
def engine() -> None:
    """Start a vLLM server for recipes with engine.servers."""


@app.command()
def start(
    recipe: Annotated[Path, typer.Argument(help='A recipe with engine.kind = "vllm".')],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, as in engine.dtype=bfloat16")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; by default that of engine.servers, or 8000.")
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the command, and start nothing.")
    ] = False,
) -> None:
    """Start a vLLM server in the foreground that RECIPE can sample with; Ctrl-C stops it."""
    from truing.cli.recipe import recipe_of
    from truing.engines.vllm.server_process import (
        OPENAI_SERVER,
        declared_port,
        server_command,
        server_variables,
    )
    from truing.models.load import available_device
    from truing.models.resolve import resolve_model

    resolved = recipe_of(recipe, overrides or [])
    if resolved.engine.kind != "vllm":
        raise RecipeError(
            "this recipe samples in the training process, and needs no server",
            got=f'engine.kind = "{resolved.engine.kind}"',
            expected='engine.kind = "vllm"',
            remedy="set it in the recipe, or add engine.kind=vllm to the command",
        )
    device = available_device(resolved.model.device)
    folder = resolve_model(resolved.model.name, resolved.model.revision)
    command = server_command(resolved, folder, device, port or declared_port(resolved), OPENAI_SERVER)
    variables = server_variables(device, resolved.engine.tensor_parallel)
    assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    say(" ".join([*assignments, shlex.join(command)]))
    if not print_only:
        os.execvpe(command[0], command, os.environ | variables)
