"""Pages at the top and in docs/ are whole: no merge is left half done in them."""

import re

from folders import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.toml")]
CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)


def test_no_page_has_conflict_markers():
    assert len(PAGES) > 50
    assert CONFLICT.search("a\n=======\nb")
    assert not [page for page in PAGES if CONFLICT.search(page.read_text(encoding="utf-8"))]
