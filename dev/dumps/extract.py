"""Compiles functions of another trainer out of modules that need a cluster to import."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def function_of(path: Path, name: str, names: Mapping[str, Any]) -> Any:
    """Return a function of a file, compiled without the rest of it and without its annotations.

    Args:
        path: the file.
        name: of the function, or of a method, whose ``self`` is then its first argument.
        names: what it uses of its module.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    function = next(
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == name
    )
    for each in ast.walk(function):
        if isinstance(each, ast.arg):
            each.annotation = None
        elif isinstance(each, ast.FunctionDef):
            each.returns = None
    own = dict(names)
    exec(compile(ast.Module([function], []), path.name, "exec"), own)
    return own[name]


def run_block(path: Path, function: str, says: str, names: Mapping[str, Any]) -> None:
    """Run the innermost ``if`` of a function whose text has some words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    within = next(each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function)
    blocks = [each for each in ast.walk(within) if isinstance(each, ast.If) and says in ast.unparse(each)]
    block = min(blocks, key=lambda each: len(ast.unparse(each)))
    exec(compile(ast.Module([block], []), path.name, "exec"), dict(names))
