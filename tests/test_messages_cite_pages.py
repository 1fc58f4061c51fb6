"""No message cites a file that a wheel does not have: it names `truing explain` and a page that exists."""

import ast
import re

import pytest
from folders import ROOT

SOURCE = ROOT / "src" / "truing"


def texts(path):
    """The strings of a file except docstrings, and the line of each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings = {id(value) for value in statements if isinstance(value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


FILES = list(SOURCE.rglob("*.py"))


def test_no_message_cites_a_file_of_docs():
    cited = [
        f"{path}:{line}"
        for path in FILES
        for line, text in texts(path)
        if re.search(r"(?<![\w/])docs/[a-z-]+\.md", text)
    ]
    assert cited == []


def test_each_page_that_a_message_names_is_there():
    named = {
        name
        for path in FILES
        for _, text in texts(path)
        for name in re.findall(r"truing explain ([a-z-]+)`", text)
    }
    assert {"vllm", "metrics", "tasks", "trl"} <= named
    assert [name for name in sorted(named) if not (SOURCE / "docs" / f"{name}.md").is_file()] == []


@pytest.mark.parametrize("topic", ["tasks", "MSK002"])
def test_explain_shows_a_page_or_a_rule_and_names_pages_by_their_command(topic, capsys):
    from truing.cli.diagnose.rules import explain

    explain(topic)
    shown = capsys.readouterr().out
    assert "docs/" not in shown
    assert {"tasks": "Add a task or an environment", "MSK002": "truing explain agents"}[topic] in shown


def test_an_unknown_topic_names_the_nearest(capsys):
    from truing.cli.diagnose.rules import explain
    from truing.errors import RecordError

    with pytest.raises(RecordError, match=r"no rule and no page 'recipe'[\s\S]*did you mean 'recipes'"):
        explain("recipe")
