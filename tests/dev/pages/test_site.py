"""The site of docs/: every page is in its navigation, and `mkdocs build` finds no broken link or anchor."""

import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import ROOT
from mkdocs.config import load_config
from mkdocs.structure.files import File, Files

import truing
from dev.pages.site import TOP_PAGES, on_files, on_page_markdown

CONFIG = load_config(str(ROOT / "mkdocs.yml"))


def paths(entry) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [path for part in parts for path in paths(part)]


def test_every_page_is_in_the_navigation():
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *(docs / "decisions").glob("*.md"), *(docs / "notebooks").glob("*.ipynb")]
    listed = paths(CONFIG.nav)
    assert len(listed) == len(set(listed))
    assert {str(page.relative_to(docs)) for page in pages} <= set(listed)
    assert {"rules/README.md", *TOP_PAGES} <= set(listed)  # the index links to the page of each rule
    there = {path for path in listed if path in TOP_PAGES or (docs / path).is_file()}
    assert set(listed) == there


@pytest.mark.integration
def test_the_site_builds_without_a_warning(tmp_path):
    """Strict: a broken link, a missing anchor or an unresolved docstring is a warning, and fails."""
    mkdocs = Path(sys.executable).parent / "mkdocs"
    settings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [mkdocs, "build", "--strict", "--quiet", "-d", tmp_path]
    built = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert (built.returncode, built.stdout) == (0, ""), built.stderr
    search = (tmp_path / "search/search_index.json").read_text(encoding="utf-8")
    for question in (ROOT / "docs/faq.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        assert f'"title":"{escape(question.partition(chr(10))[0])}"' in search
    reference = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert [name for name in truing.__all__ if f'.{name}"' not in reference] == []
    assert [page for page in tmp_path.glob("*.html") if re.search(r"<p>[^<]*\n- ", page.read_text())] == []
    assert '<a href="files/recipes/own.toml.html">' in (tmp_path / "tasks.html").read_text(encoding="utf-8")


@pytest.fixture
def page(tmp_path):
    """A page's text on the site of a repository with one recipe: ``page(path, text)``, or another page's."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/a.toml").write_text("x = 1\n")
    for name in TOP_PAGES:
        (tmp_path / name).write_text("# Top\n\n[b](docs/b.md)\n")
    config = SimpleNamespace(
        config_file_path=str(tmp_path / "mkdocs.yml"), site_dir=str(tmp_path), use_directory_urls=False
    )
    config.plugins = SimpleNamespace(_current_plugin="test")

    def on_site(path, text, of=None):
        files = on_files(Files([File.generated(config, path, content=text)]), config)
        there = SimpleNamespace(file=files.get_file_from_path(of or path), meta={})
        return on_page_markdown(there.file.content_string, there, config, files)

    return on_site


@pytest.mark.parametrize(
    ("path", "link", "on_site"),
    [
        ("tasks.md", "../recipes/a.toml", "files/recipes/a.toml.md"),
        ("rules/R.md", "../../recipes/a.toml#x", "../files/recipes/a.toml.md#x"),
        ("tasks.md", "../recipes", "files/recipes.md"),
        ("tasks.md", "../LOG.md", "LOG.md"),
        ("rules/R.md", "../../CHANGELOG.md", "../CHANGELOG.md"),
        ("tasks.md", "rules/R.md#fix", "rules/R.md#fix"),
        ("tasks.md", "#here", "#here"),
        ("tasks.md", "https://example.com/a.md", "https://example.com/a.md"),
        ("tasks.md", "../recipes/none.toml", "../recipes/none.toml"),  # stays, and fails the strict build
    ],
)
def test_links_out_of_docs_lead_to_pages_of_the_site(page, path, link, on_site):
    assert page(path, f"[x]({link})\n") == f"[x]({on_site})\n"


def test_links_of_a_page_at_the_top_lead_into_docs(page):
    assert page("a.md", "[x](../LOG.md)", of="LOG.md") == "# Top\n\n[b](b.md)\n"
