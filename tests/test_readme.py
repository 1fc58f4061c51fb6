"""What the README shows runs."""

import re

import pytest
from folders import ROOT

import truing
from truing.doctor.rules import RULES

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow  # docs/notebooks train the same
@pytest.mark.parametrize("block", [0, 1], ids=["reward", "agent"])
def test_a_python_example_raises_the_reward(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    names = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[block], names)
    base, _, last = (each.estimate().mean for each in names["run"].evaluations.values())
    assert last > base + 0.3


@pytest.mark.integration
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
