"""The model card: what was trained, evaluated and proven."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truing.analysis.train_result import TrainResult, evaluations_of
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.models.resolve import HUB_ID
from truing.record import RunReader

CARD = """---
library_name: transformers
{base}{dataset}tags:
- truing
- {algorithm}
---

# {name}

{model}, trained with {algorithm} by [Truing](https://pypi.org/project/truing) {version}.
Steps: {steps}. Seed: {seed}.

## Training

```toml
{recipe}
```

## Evaluation

{evaluation}

## Proofs

{proofs}
"""


def write_card(
    run: Path, folder: Path, name: str, model: str, version: str, dataset: str | None = None
) -> Path:
    """Write the model card of a run to ``folder/README.md``; return its path.

    The hub refuses a card whose base is not a model there, and nobody else has the paths of this machine.
    """
    on_hub = HUB_ID.fullmatch(model) and not Path(model).exists()
    reader = RunReader(run)
    facts = reader.run_fact("recipe")
    text = CARD.format(
        base=f"base_model: {model}\n" if on_hub else "",
        model=model if on_hub else Path(model).name or "a new model",
        dataset="" if dataset is None else f"datasets: {dataset}\n",
        algorithm=", ".join(facts["stages"]),
        name=name,
        version=version,
        steps=reader.count_steps(),
        seed=facts["seed"],
        recipe=reader.recipe().strip().replace(f'"{folder}/', '"'),
        evaluation=_evaluation(run),
        proofs=_proofs(run),
    )
    path = folder / "README.md"
    path.write_text(text, encoding="utf-8")
    return path


def _evaluation(run: Path) -> str:
    """Return the mean reward of each evaluation, with its interval."""
    result = TrainResult(run, evaluations_of(RunReader(run).events()))
    if not result.evaluations:
        return "The run was not evaluated."
    lines = [f"| {name} | {estimate} |" for name, estimate in result.estimates().items()]
    lines += [f"| gain of {name}, paired | {gain} |" for name, gain in result.gains().items()]
    return "\n".join(
        ["Mean reward, with 95 % intervals:", "", "| evaluation | reward |", "|---|---|", *lines]
    )


def _proofs(run: Path) -> str:
    """Return what the doctor's rules say of the steps."""
    results = diagnose_run(run).results()
    checked = [result for result in results if result.verdict is not Verdict.NOT_CHECKED]
    found = [result for result in checked if result.verdict is not Verdict.CLEAN]
    text = f"{len(checked)} of {len(results)} rules checked the steps of this run (`truing check RUN`)."
    if not found:
        return f"{text} None has a finding."
    lines = [f"- {result.code}: {result.verdict.value}" for result in found]
    return "\n".join([text, "Findings:", "", *lines])


NOT_PUSHED = ("truing/*", "truing-*/*", "checkpoint-*/*", "model/*", "untrained.toml", "prompt.jinja")
"""What ``output_dir`` has beside the model and its card: records with all answers, and the first weights."""


def create_repository(args: Any, name: str) -> str:
    """Create the repository on the hub, if there is none; return its id."""
    from huggingface_hub import HfApi

    hub = HfApi(token=args.hub_token)
    with _named_hub_errors():
        created = hub.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True)
    return created.repo_id


def push(folder: Path, args: Any, repository: str, message: str) -> str:
    """Upload a folder to a repository; return the address of the commit."""
    from huggingface_hub import HfApi

    with _named_hub_errors():
        commit = HfApi(token=args.hub_token).upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=message,
            revision=args.hub_revision,
            ignore_patterns=[*NOT_PUSHED],
        )
    return str(commit)


@contextmanager
def _named_hub_errors() -> Iterator[None]:
    """Name an error of the hub within the block: no network, no token, no right to write."""
    from httpx2 import HTTPError

    try:
        yield
    except (OSError, ValueError, HTTPError) as error:  # those of huggingface_hub are of these classes
        raise RecordError(
            "the hub does not take the model",
            got=f"{type(error).__name__}: {error}"[:300],
            remedy="save_model() keeps it on this machine; for the hub, `hf auth login`, or set hub_token",
        ) from error
