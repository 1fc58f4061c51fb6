"""`truing export`: write a run's policy as a folder that other libraries load, or its best conversations."""

import json
from pathlib import Path
from typing import Annotated

import typer

from truing.utils.format import escape_lines


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    to: Annotated[
        Path | None, typer.Option(help="New folder; by default RUN/export, or RUN/adapter.")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Write only the adapter, for peft.")] = False,
    step: Annotated[
        int | None, typer.Option(min=0, help="Steps of the checkpoint; by default the newest.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="Stage of --step; by default the last that has such a checkpoint.")
    ] = None,
    conversations: Annotated[
        Path | None,
        typer.Option(help="Instead write rows for SFT here: the best answers of a program to each task."),
    ] = None,
    min_reward: Annotated[
        float | None, typer.Option(help="Of --conversations: the smallest reward of a rollout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write a checkpoint of a run, merged or as an adapter, with its sampling parameters."""
    if conversations is not None:
        _write_conversations(run, conversations, min_reward, as_json)
        return
    from truing.learner.restore import checkpoint_after, restore_policy
    from truing.models.export import export as write

    kind = "adapter" if adapter else "merged"
    out = to or run / ("adapter" if adapter else "export")
    restored = restore_policy(run, None if step is None else checkpoint_after(run, step, stage))
    warnings = write(restored.policy, restored.loaded, restored.sampling_params, out, kind)
    if as_json:
        print(json.dumps({"path": str(out), "kind": kind, "warnings": warnings}))
        return
    for warning in warnings:
        typer.secho(escape_lines(f"warning: {warning}"), err=True, fg="yellow")
    print(out)


def _write_conversations(run: Path, out: Path, min_reward: float | None, as_json: bool) -> None:
    """Write the rows of the run's data that a program has a paid rollout of, with the policy's answers."""
    from truing.analysis.demonstrations import best_answers, highest_reward
    from truing.config import load_recipe
    from truing.doctor.report.token_texts import run_tokenizer
    from truing.envs.program.config import ProgramConfig
    from truing.envs.program.demonstrated_rows import demonstrated_rows
    from truing.errors import RecordError
    from truing.record import RunReader
    from truing.utils.jsonl import dump_json

    env = dict(load_recipe(run / "recipe.toml").env)
    if env.pop("name", None) != "program":
        raise RecordError(
            f"the conversations of {run} cannot be written", expected='a run with [env] name = "program"'
        )
    if min_reward is None:
        raise RecordError(
            "--conversations needs --min-reward",
            expected="the smallest reward of a rollout that becomes a demonstration",
            remedy="add --min-reward 1, say",
        )
    reader = RunReader(run)
    tokens = run_tokenizer(run).added_tokens_decoder.values()
    answers = best_answers(reader, min_reward, [token.content for token in tokens if token.special])
    rows = list(demonstrated_rows(ProgramConfig(**env), answers))
    if not rows:
        highest = highest_reward(reader)
        raise RecordError(
            f"no recorded rollout of {run} with a reward of {min_reward:g} or more can be demonstrated",
            got="no rollout with a reward" if highest is None else f"{highest:g} as the highest reward",
            expected="one whose answers are text, without special tokens and bytes that are no text",
            remedy="lower --min-reward, or sample with a stronger model first",
        )
    out.write_bytes(b"".join(dump_json(row) + b"\n" for row in rows))
    print(json.dumps({"path": str(out), "rows": len(rows)}) if as_json else f"{out}: {len(rows)} rows")
