"""Bundles the JavaScript modules of the pages into one script for the report, which cannot import."""

import re
from importlib.resources import files

IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./(.+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def bundle(entry: str = "main.js") -> str:
    """Return the modules that the entry needs, each as a function that returns its exports."""
    return "const modules = {};\n" + "".join(
        _wrapped(name, text) for name, text in _needed(entry, {}).items()
    )


def _needed(name: str, sources: dict[str, str]) -> dict[str, str]:
    """Return modules by name, each after its imports."""
    text = (files("truing.board") / "pages" / name).read_text(encoding="utf-8")
    for _, imported in IMPORT.findall(text):
        if imported not in sources:
            _needed(imported, sources)
    sources[name] = text
    return sources


def _wrapped(name: str, text: str) -> str:
    names = ", ".join(exported for _, exported in EXPORT.findall(text))
    body = EXPORT.sub(r"\1", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n'
