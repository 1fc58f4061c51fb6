"""What the README shows runs."""

import re

from folders import ROOT

import truing
from truing.doctor.rules import RULES

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    names = {}
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], names)
    assert list(names["run"].evaluations) == ["base", "after_sft", "after_grpo"]


def test_the_agent_example_has_no_findings(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(truing, "train", truing.check)
    names = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1], names)
    assert not list(names["run"].findings)


def test_the_readme_has_at_most_150_lines():
    assert len(README.splitlines()) <= 150


def test_the_readme_counts_the_rules():
    assert f"**{len(RULES)} rules" in README


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
