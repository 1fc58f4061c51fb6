"""Creation of a lab: folders, a problem statement, a baseline, and hypotheses from a template."""

import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import get_args

from truing.config import load_recipe, recipe_path
from truing.config.recipe import Stage
from truing.errors import LabError
from truing.lab.report.write import readme_text, write_report
from truing.lab.store.lab import CONFIG, HYPOTHESES, PROBLEM, README, RESULTS, Lab, open_lab
from truing.utils.atomic_files import disk_errors

TEMPLATE_RECIPES = {
    "musique": "musique",
    "dual": "dual",
    "tools": "workspace",
    "tiny": "tiny",
    "blank": "tiny",
}
"""The default recipe of each template."""

GITATTRIBUTES = """\
# written by `truing lab report`, which repairs these files after a merge
README.md merge=union
01-experiments-log.md merge=union
hypotheses/*.md merge=union
"""

GITIGNORE = f"{RESULTS}/runs/\n"


def create_lab(folder: Path, template: str, recipe: str | None) -> list[Path]:
    """Create a lab; return the written files.

    Args:
        folder: a new or empty folder.
        template: the source of hypotheses, problem statement and baseline.
        recipe: another baseline, as a file or by name.
    """
    if template not in TEMPLATE_RECIPES:
        raise LabError("unknown template", got=template, expected=", ".join(TEMPLATE_RECIPES))
    if folder.exists() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty", expected="a new folder", remedy="name another")
    baseline = recipe or TEMPLATE_RECIPES[template]
    stages = load_recipe(baseline).stages  # raises before anything is written
    source, name = files("truing.lab") / "templates", folder.resolve().name
    texts = {
        CONFIG: Template((source / template / CONFIG).read_text(encoding="utf-8")).substitute(name=name),
        "recipe.toml": recipe_path(baseline).read_text(encoding="utf-8"),
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
