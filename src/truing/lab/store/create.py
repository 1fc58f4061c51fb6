"""Creation of a lab: folders, a problem statement, a baseline, and hypotheses from a template."""

import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import get_args

from truing.analysis.compare import flatten
from truing.config import Recipe, load_recipe, recipe_path
from truing.config.recipe import Stage
from truing.errors import LabError
from truing.lab.report.suggest import Suggestion, header_text
from truing.lab.report.write import readme_text, write_report
from truing.lab.run.design import baseline_of
from truing.lab.store.lab import CONFIG, HYPOTHESES, PROBLEM, README, RESULTS, Lab, open_lab
from truing.utils.atomic_files import disk_errors, write_atomically

TEMPLATE_RECIPES = {
    "musique": "musique",
    "dual": "dual",
    "tools": "workspace",
    "tiny": "tiny",
    "blank": "tiny",
}
"""The default recipe of each template."""

RECIPE = "recipe.toml"

GITATTRIBUTES = """\
# written by `truing lab report`, which repairs these files after a merge
README.md merge=union
01-experiments-log.md merge=union
hypotheses/*.md merge=union
experimental-results/report.md merge=union
"""

GITIGNORE = f"{RESULTS}/runs/\n"


def create_lab(folder: Path, template: str, recipe: str | None, changes: Sequence[str] = ()) -> list[Path]:
    """Create a lab; return the written files.

    Args:
        folder: a new or empty folder.
        template: the source of hypotheses, problem statement and baseline.
        recipe: another baseline, as a file or by name.
        changes: of the recipe, ``key=value``, after the template's own in the lab's settings.
    """
    if template not in TEMPLATE_RECIPES:
        raise LabError("unknown template", got=template, expected=", ".join(TEMPLATE_RECIPES))
    if folder.exists() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty", expected="a new folder", remedy="name another")
    stages = load_recipe(recipe or TEMPLATE_RECIPES[template], changes).stages
    source, name = files("truing.lab") / "templates", folder.resolve().name
    settings = Template((source / template / CONFIG).read_text(encoding="utf-8")).substitute(name=name)
    texts = {
        CONFIG: _with_changes(settings, [_from_folder(change, folder) for change in changes]),
        RECIPE: _recipe_text(recipe or TEMPLATE_RECIPES[template]),
        ".gitattributes": GITATTRIBUTES,
        ".gitignore": GITIGNORE,
        README: readme_text(name),
        PROBLEM: (source / PROBLEM).read_text(encoding="utf-8"),
        **{
            f"{HYPOTHESES}/{each.name}": _of_stages(each.read_text(encoding="utf-8"), stages)
            for each in _hypotheses(source / template)
        },
    }
    with disk_errors(folder):
        for name_ in (HYPOTHESES, RESULTS):
            (folder / name_).mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
    derived = [
        path
        for path in write_report(open_lab(folder))
        if path.relative_to(folder.resolve()).as_posix() not in texts
    ]
    return [*(folder / path for path in texts), *derived]


def _hypotheses(template: Traversable) -> list[Traversable]:
    return sorted(
        (each for each in template.iterdir() if each.name.endswith(".md")), key=lambda each: each.name
    )


def _of_stages(text: str, stages: Sequence[str]) -> str:
    """Return a hypothesis without changes of stages that the baseline does not train."""
    others = "|".join(sorted({*get_args(Stage)} - {*stages}))
    return re.sub(rf'"(?:{others})\.[^"]*",? ?', "", text)


def _with_changes(settings: str, changes: Sequence[str]) -> str:
    """Return the text of settings with more changes at the end of their list."""
    start = settings.index("changes = [")
    end = settings.index("]", start)
    listed = settings[start:end].rstrip()
    comma = "" if listed.endswith(("[", ",")) else ","
    added = "".join(f"\n  {json.dumps(change, ensure_ascii=False)}," for change in changes)
    return f"{settings[:start]}{listed}{comma}{added}\n{settings[end:]}" if changes else settings


def _from_folder(change: str, folder: Path) -> str:
    """Return a change of ``env.`` or ``model.`` with its path, if it is one, relative to the lab's folder."""
    key, _, value = change.partition("=")
    path, bracket, limit = value.partition("[")  # as in FILE[:100]
    if (
        not key.startswith(("env.", "model."))
        or Path(path).is_absolute()
        or not path
        or not Path(path).exists()
    ):
        return change
    return f"{key}={os.path.relpath(path, folder)}{bracket}{limit}"


def _recipe_text(recipe: str) -> str:
    """Return the text of the recipe's file, with comments."""
    load_recipe(recipe)  # raises before anything is written
    return recipe_path(recipe).read_text(encoding="utf-8")


def next_hypothesis_path(lab: Lab, title: str) -> Path:
    """Return the path of the next hypothesis."""
    recorded = {each.hypothesis for each in lab.history.entries}  # a number stays used when its file is gone
    numbers = {int(name[1:]) for name in {*lab.hypotheses, *recorded} if name[1:].isdigit()}
    number = max(numbers, default=0) + 1
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].rstrip("-") or "untitled"
    return lab.root / HYPOTHESES / f"h{number:02d}-{slug}.md"


def blank_hypothesis(title: str, number: int) -> str:
    """Return the text of a hypothesis to fill in."""
    text = (files("truing.lab") / "templates" / "hypothesis.md").read_text(encoding="utf-8")
    return Template(text).substitute(title=title, number=f"{number:02d}")


def why_unwanted(lab: Lab, suggestion: Suggestion, recipe: Recipe) -> str:
    """Return why a suggestion does not fit this lab; "" if it fits."""
    if any(each.title == suggestion.title for each in lab.hypotheses.values()):
        return "the lab has it"
    lab_values, run_values = (
        flatten(each.model_dump(mode="json")) for each in (baseline_of(lab).recipe, recipe)
    )
    for key in (change.partition("=")[0] for change in suggestion.changes):
        if lab_values.get(key) != run_values.get(key):
            return (
                f"{key} is {run_values.get(key)} in that run, and {lab_values.get(key)} in the lab's baseline"
            )
    return ""


def write_suggestion(lab: Lab, suggestion: Suggestion) -> Path:
    """Write a suggestion as the lab's next hypothesis; return its path."""
    path = next_hypothesis_path(lab, suggestion.title)
    number = path.name[1:].partition("-")[0]
    header = header_text(suggestion)
    below = "## Claim\n\n## Result"
    text = f"# H{number}: {suggestion.title}\n\n```toml\n{header}\n```\n\n{below}\n"
    write_atomically(path, text.encode())
    return path
