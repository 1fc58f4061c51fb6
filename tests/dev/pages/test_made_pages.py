"""Pages that are made from the code are as the code makes them."""

from importlib import import_module

import pytest
from folders import ROOT


@pytest.mark.parametrize("name", ["measurements", "why"])
def test_a_page_is_up_to_date(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert page == import_module(f"dev.pages.{name}").page(), (
        f"run: python -m dev.pages.{name} > docs/{name}.md"
    )
