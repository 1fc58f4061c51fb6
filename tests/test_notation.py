"""Every shape suffix of the formulas is in the legend, docs/notation.md."""

import ast
import re

import pytest
from folders import ROOT

LEGEND = set(
    re.findall(r"^\| `([A-Z])` \|", (ROOT / "docs/notation.md").read_text(encoding="utf-8"), re.MULTILINE)
)
FILES = sorted((ROOT / "src/truing/ops").glob("*.py"))


def suffixes(source: str) -> set[str]:
    """The capitals that end the names of variables, arguments and keywords."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                names.add(name)
    results = (re.fullmatch(r"_?[a-z][a-z0-9_]*_([A-Z]+)\d*", name) for name in names)
    return {match[1] for match in results if match}


def test_suffixes_are_found_wherever_a_name_stands():
    source = "def f(a_BT, *, b_N64):\n    c_V: Tensor = g(d_K=a_BT)\n    return CONSTANT, e, x.h_Q, A_B"
    assert suffixes(source) == {"BT", "N", "V", "K"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_suffix_is_in_the_legend(path):
    letters = set("".join(suffixes(path.read_text(encoding="utf-8"))))
    assert letters <= LEGEND, f"add {sorted(letters - LEGEND)} to docs/notation.md"


def test_the_formulas_use_suffixes_at_all():
    used = set().union(*(suffixes(path.read_text(encoding="utf-8")) for path in FILES))
    assert {"BT", "N", "NV"} <= used
