"""Imports go one way. Each room may import those named with it, and all of these stand above it."""

import ast
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from folders import ROOT

import truing

SOURCE = ROOT / "src" / "truing"

MAY_IMPORT = {
    "errors": "",
    "trace_writer": "",
    "utils": "errors",
    "types": "errors",
    "distributed": "errors utils",
    "config": "errors utils types",
    "ops": "errors types",
    "record": "errors utils types",
    "analysis": "errors utils types config ops record",
    "chat": "errors utils types",
    "models": "errors utils types distributed config ops",
    "rewards": "errors utils types config chat models",
    "engines": "errors utils types distributed config ops models",
    "cluster": "errors utils distributed config models engines",
    "envs": "errors utils types config rewards",
    "endpoint": "errors utils types envs",
    "algos": "errors types config ops",
    "rollouts": "errors utils types distributed config ops chat models rewards engines envs endpoint algos",
    "checks": "errors utils types chat rewards engines envs algos rollouts",
    "metrics": "errors types config ops envs",
    "doctor": "errors trace_writer utils types config ops record analysis metrics",
    "terminal": "errors utils types config record analysis doctor",
    "trackers": "errors utils config metrics",
    "learner": "errors utils types distributed config ops record models algos metrics",
    "measurements": (
        "errors utils types distributed config ops chat models rewards engines envs endpoint algos "
        "rollouts metrics doctor learner"
    ),
    "trainer": (
        "errors utils types distributed config record analysis chat models rewards engines envs algos "
        "rollouts checks metrics doctor trackers learner measurements"
    ),
    "api": (
        "errors distributed config record analysis chat models rewards envs rollouts checks doctor terminal "
        "learner trainer"
    ),
    "trl": (
        "errors utils types distributed config record analysis chat models rewards envs metrics doctor"
        " terminal learner trainer api"
    ),
    "integrations": "errors utils types distributed models doctor measurements",
    "lab": "errors utils config record analysis rewards envs metrics doctor terminal learner api",
    "__init__": "errors types config analysis rewards engines envs checks api lab",
    "board": "errors utils types config ops record analysis metrics doctor lab",
    "cli": (
        "errors utils types distributed config record analysis models engines cluster envs checks doctor "
        "terminal learner trainer api lab board"
    ),
    "__main__": "cli",
}
"""The product, from the bottom up."""

LIBRARIES = {
    "ops": {"torch"},
    "types": {"pydantic", "torch", "typing_extensions"},
    "errors": set(),
    "trace_writer": {"numpy"},
    "utils": {"anyio", "httpx2", "jsonschema", "numpy", "psutil", "regex", "torch", "transformers"},
}
"""What the rooms of pure formulas may import from outside; math and typing come with Python."""


def modules(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; ``from truing import x`` counts as truing.x."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which this test cannot follow"
            result |= (
                {f"truing.{alias.name}" for alias in node.names} if node.module == "truing" else {node.module}
            )
    return result


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


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "doctor" / "oracle").glob("*.py")), ids=lambda path: path.stem
)
def test_an_oracle_imports_data_types_alone_and_no_code_that_it_checks(path):
    own = ("truing.doctor.oracle", "truing.doctor.evidence", "truing.types", "truing.errors")
    foreign = {name for name in modules(path) if name.startswith("truing") and not name.startswith(own)}
    assert foreign == set()


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


def test_the_board_tail_and_environments_do_not_wait_for_what_trains():
    program = (
        "import sys, truing.board.server, truing.cli.inspect.follow, truing.rollouts.workers\n"
        "assert not {'transformers', 'peft', 'scipy.stats'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_step_loads_nothing_that_samples():
    program = (
        "import sys, truing.learner.step\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('truing.')}\n"
        "found = rooms & {'chat', 'rewards', 'engines', 'envs', 'rollouts', 'doctor', 'trainer'}\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_no_folder_of_tests_hides_a_library():
    """Pytest puts a test's folder on the path, where a folder counts as a package that is not installed."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [folder for folder in folders if (folder / "vllm").is_dir()] == []
