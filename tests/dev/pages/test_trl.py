"""docs/trl.md is made of the table of TRL's arguments."""

from folders import ROOT

from dev.pages.trl import page


def test_the_committed_page_is_made_of_the_code():
    assert (ROOT / "docs/trl.md").read_text(encoding="utf-8") == page(), (
        "run: python -m dev.pages.trl > docs/trl.md"
    )
