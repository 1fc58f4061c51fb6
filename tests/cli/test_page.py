"""docs/cli.md is made of the commands, and names every one with its options."""

from folders import ROOT

from dev.pages.cli import page
from truing.cli import PANELS


def test_the_committed_page_is_made_of_the_code():
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == page(), (
        "run: python -m dev.pages.cli > docs/cli.md"
    )


def test_every_command_has_a_section():
    names = [name for commands in PANELS.values() for name in commands]
    assert [name for name in names if f"\n### truing {name}\n" not in page()] == []


def test_a_group_has_its_commands_without_the_hidden_ones():
    assert "\n### truing lab run\n" in page()
    assert "\n### truing lab work\n" not in page()


def test_a_command_shows_its_usage_and_each_option():
    section = page().partition("\n### truing train\n")[2].partition("\n### ")[0]
    assert "\n```\ntruing train RECIPE [OVERRIDES …] [OPTIONS]\n```\n" in section
    assert "\n| `--out OUT`, `--output-dir OUT` | – | Run directory;" in section
    assert "\n| `--resume` | – |" in section
    assert "\n| `RECIPE` | required |" in section
