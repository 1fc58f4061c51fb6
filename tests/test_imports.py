"""Imports go one way. Each room may import those named with it, and all of these stand above it."""

import ast
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import truing

SOURCE = Path(__file__).parents[1] / "src" / "truing"

MAY_IMPORT = {
    "errors": "",
    "copies": "errors",
    "messages": "",
    "contract": "errors",
    "outcomes": "",
    "words": "",
    "types": "errors messages contract outcomes",
    "rng": "",
    "clock": "",
    "config": "errors contract words types",
    "ops": "errors contract types",
    "record": "errors messages contract outcomes words types rng ops",
    "chat": "errors messages types",
    "memory": "",
    "models": "errors contract types ops memory",
    "rewards": "errors copies types config chat models",
    "sample": "errors contract outcomes types rng clock ops models",
    "envs": "errors copies messages outcomes types rng config rewards",
    "rollout": "errors messages contract outcomes types rng clock config ops chat rewards sample envs",
    "checks": "errors copies messages contract outcomes types chat rewards sample envs rollout",
    "algos": "errors types config ops rollout",
    "doctor": "errors contract outcomes words types config ops record",
    "glance": "errors record doctor",
    "scorecard": "config record",
    "panel": "errors words config record doctor glance scorecard",
    "trackers": "errors config record",
    "training": (
        "errors messages contract outcomes words types rng clock config ops record chat memory models rewards"
        " sample envs rollout checks algos doctor trackers"
    ),
    "display": "errors words types record doctor panel",
    "api": "errors types config record chat models rewards envs rollout checks doctor training display",
    "__init__": "messages types rewards envs api",
    "bench": "errors messages contract outcomes types memory models rewards sample training api",
    "probes": "errors messages outcomes types config ops models rewards envs training",
    "integrations": "errors contract outcomes types rng models doctor training",
    "faults": "errors outcomes types rng config ops record models rewards rollout doctor training api",
    "verify": "errors config record scorecard training display api probes",
    "lab": "errors words types rng config record rewards doctor training display api",
    "board": "errors types config ops record doctor glance scorecard lab",
    "recipe_page": "config record envs",
    "cli": (
        "errors words types clock config record models checks doctor scorecard panel training display"
        " api bench probes faults verify lab board"
    ),
    "__main__": "cli",
}
"""The product, from the bottom up."""

LIBRARIES = {"ops": {"torch"}, "types": {"torch"}, "errors": set(), "rng": {"numpy", "torch"}}
"""What the rooms of pure formulas may import from outside; math and typing come with Python."""


def modules(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; ``from truing import x`` counts as truing.x."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which this test cannot follow"
            found |= (
                {f"truing.{alias.name}" for alias in node.names} if node.module == "truing" else {node.module}
            )
    return found


def room(path: Path) -> str:
    """The folder or file of the package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def rooms_of(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("truing.")}


FILES = sorted(SOURCE.rglob("*.py"))


def test_the_table_names_every_room_and_goes_one_way():
    assert {room(path) for path in FILES} == set(MAY_IMPORT)
    order = list(MAY_IMPORT)
    for name, allowed in MAY_IMPORT.items():
        places = [order.index(each) for each in [*allowed.split(), name]]
        assert all(a < b for a, b in pairwise(places)), (
            f"{name} imports what stands below it, or out of order"
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_room_may(path):
    allowed = {room(path), *MAY_IMPORT[room(path)].split()}
    assert rooms_of(modules(path)) <= allowed


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_room_imports_what_the_table_lets_it(name):
    """A permission that nobody uses would hide the first misuse; types and errors are free to all."""
    used = set().union(*(rooms_of(modules(path)) for path in FILES if room(path) == name))
    assert set(MAY_IMPORT[name].split()) - used <= {"errors", "types"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_formulas_import_torch_and_nothing_else(name):
    used = set().union(*(modules(path) for path in FILES if room(path) == name))
    outside = {module.partition(".")[0] for module in used} - set(sys.stdlib_module_names) - {"truing"}
    assert outside <= LIBRARIES[name]


def test_what_the_package_offers_is_found_and_is_no_module():
    for name in truing.__all__:
        assert callable(getattr(truing, name))
        assert not (SOURCE / name).exists()
        assert not (SOURCE / f"{name}.py").exists()
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        truing.trian  # noqa: B018


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["train", "nowhere.toml"]])
def test_help_and_a_wrong_recipe_do_not_wait_for_torch(words):
    program = (
        "import sys; from truing.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True)
