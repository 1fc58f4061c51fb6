"""docs/lab.md names every key and command of the lab."""

from folders import ROOT

from truing.lab.store.hypothesis_file import Check, Criterion, Header, Measure, Prior
from truing.lab.store.lab import LabConfig

PAGE = (ROOT / "docs" / "lab.md").read_text()


def test_every_key_is_documented():
    for part in (LabConfig, Header, Check, Criterion, Measure, Prior):
        for name in part.model_fields:
            forms = (f"`{name}`", f"`[{name}]`", f"{name},", f"{name} }}", f" {name} ", f"{name} = ")
            assert any(form in PAGE for form in forms), f"{part.__name__}.{name} is not in docs/lab.md"


def test_every_command_is_documented():
    from truing.cli.experiment.lab import app

    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    for name in set(names) - {"work"}:
        assert f"truing lab {name}" in PAGE
