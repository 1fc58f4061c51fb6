"""`truing train`: run a recipe."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from truing.cli.output import exit_code_of_ranks, keep_running
from truing.cli.recipe import recipe_of
from truing.config import TrlOptions, read_table, translate_options
from truing.errors import RecordError
from truing.terminal.say import say
from truing.utils.end_with_parent import end_with_parent
from truing.utils.process_state import no_early_exit

STOP_SECONDS = 20.0
"""Seconds in which a rank ends whose launcher has ended."""

ALIAS_PANEL = "Names of other trainers (`truing explain aliases`)"


def _alias_option(help: str, min: int | None = None) -> typer.models.OptionInfo:
    """Return an option named as in TRL; a key=value for the same recipe key takes precedence."""
    return typer.Option(help=help, rich_help_panel=ALIAS_PANEL, min=min)


def train(  # noqa: PLR0913 — typer takes each option as an argument
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a built-in recipe: musique.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in grpo.steps=20")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--output-dir", help="Run directory; by default a new one under runs/."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    step: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --resume: from the checkpoint after so many steps; later ones are set aside."
        ),
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of --step; by default the last that has such a checkpoint.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda, as model.device; by default CUDA if available.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes here, as trainer.ranks; `truing explain scale`.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Let Ray place ranks and engines: HOST:PORT, auto or local; `truing explain scale`.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
    datasets: Annotated[
        list[str] | None, _alias_option("env.data: a spec, or several separated by ';'; repeatable.")
    ] = None,
    batch_size: Annotated[
        int | None, _alias_option("Rollouts per step: prompts × --num-generations.", min=1)
    ] = None,
    num_generations: Annotated[
        int | None, _alias_option("group_size of the last policy stage.", min=1)
    ] = None,
    max_steps: Annotated[int | None, _alias_option("steps of the last policy stage.", min=1)] = None,
    learning_rate: Annotated[float | None, _alias_option("learning_rate of the last policy stage.")] = None,
    logging_steps: Annotated[int | None, _alias_option("1: every step is recorded.")] = None,
    scale_rewards: Annotated[
        str | None, _alias_option("grpo.advantage_scale: true (group), false (none), group, batch, none.")
    ] = None,
    kl_beta: Annotated[float | None, _alias_option("kl.coef; 0 removes the KL term.")] = None,
    no_peft: Annotated[
        bool,
        typer.Option("--no-peft", help="lora=false: train all weights.", rich_help_panel=ALIAS_PANEL),
    ] = False,
    max_prompt_length: Annotated[
        int | None, _alias_option("episode.max_prompt_tokens: longer prompts are truncated.", min=1)
    ] = None,
) -> None:
    """Train RECIPE's stages (SFT, RFT, REINFORCE, RLOO, GRPO, PPO), with evaluations around each."""
    end_with_parent(STOP_SECONDS)  # a rank, with its launcher
    keep_running()
    trl_options = TrlOptions(
        datasets=datasets or (),
        batch_size=batch_size,
        num_generations=num_generations,
        max_steps=max_steps,
        learning_rate=learning_rate,
        logging_steps=logging_steps,
        scale_rewards=scale_rewards,
        kl_beta=kl_beta,
        no_peft=no_peft,
        max_prompt_length=max_prompt_length,
    )
    command_line = [
        *(overrides or ()),
        *([f"model.device={device}"] if device else ()),
        *([f"trainer.ranks={ranks}"] if ranks else ()),
    ]
    options = translate_options(trl_options, read_table(recipe), command_line)
    resolved = recipe_of(recipe, [*options.overrides, *command_line])
    from truing.distributed.ranks import is_launched

    notes = options.notes
    if not is_launched():  # whoever started the ranks has done so
        notes = (*notes, *_gone_back(out if resume else None, step, stage))
    for note in notes:
        say(f"note: {note}", err=True)
    if (ray or resolved.trainer.ranks > 1) and not is_launched():
        from truing.cli.train.start_ranks import start_ranks, start_ranks_by_ray

        start = partial(start_ranks_by_ray, address=ray) if ray else start_ranks
        code = start(resolved, out, resume)
        raise typer.Exit(code or exit_code_of_ranks())
    from truing.api import run_recipe  # takes seconds, and only ranks need it
    from truing.terminal.run_result import print_result, result_json

    with no_early_exit("training"):
        result = run_recipe(resolved, out=out, resume=resume)
    if as_json:
        print(result_json(result))
    else:
        print_result(result)


def _gone_back(resumed: Path | None, step: int | None, stage: str | None) -> list[str]:
    """Return a run to a step, if one is given; return what became of later ones."""
    if step is None and stage is None:
        return []
    if resumed is None or step is None:
        raise RecordError(
            "--step is of a run that is resumed, and --stage of a step",
            got=" ".join(f"--{name} {value}" for name, value in (("step", step), ("stage", stage)) if value),
            expected="--out RUN --resume --step N",
        )
    from truing.trainer.go_back import go_back

    return [go_back(resumed, step, stage)]
