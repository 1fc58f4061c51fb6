"""Hooks of mkdocs.yml: pages link to files of the repository, and the site has them too.

docs/ is read on GitHub too, so a page links to `../recipes/own.toml`; the site has a page for each such file.
"""

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

TOP_PAGES = ("CHANGELOG.md", "LOG.md")
"""Pages at the top of the repository that the navigation of the site has."""

NOT_SEARCHED = re.compile(r"(LOG|CHANGELOG|detection-matrix.*|decisions/.*)\.md")
"""Pages that the search leaves out: they name everything, and explain nothing to a user."""

LINK = re.compile(r"(?<=\]\()(?P<path>[^()#:\s]+)(?P<anchor>#[^()\s]*)?(?=\))")
"""The target of a Markdown link to a path."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages at the top of the repository, and a page for each file or folder that a page links to."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for name in TOP_PAGES:
        files.append(File.generated(config, name, content=(root / name).read_text(encoding="utf-8")))
    for path in sorted(_linked(files, root)):
        files.append(File.generated(config, f"files/{path}.md", content=_file_page(root, path)))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Return the text with each link to a file of the repository as one to its page on the site."""
    here = page.file.src_uri
    start = posixpath.dirname(here) or "."
    if NOT_SEARCHED.fullmatch(here):
        page.meta["search"] = {"exclude": True}
    elif here == "faq.md":
        page.meta["search"] = {"boost": 4.0}

    def on_site(link: re.Match[str]) -> str:
        target = _in_repository(here, link["path"])
        if target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif files.get_file_from_path(f"files/{target}.md"):
            target = f"files/{target}.md"
        elif target not in TOP_PAGES:
            return link[0]  # an external address, or a file that is not there, which the build reports
        return posixpath.relpath(target, start) + (link["anchor"] or "")

    return markdown if here.startswith("files/") else LINK.sub(on_site, markdown)


def _linked(files: "Files", root: Path) -> set[str]:
    """Return the files and folders outside docs/ that pages link to, as paths in the repository."""
    pages = [file for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    links = {
        _in_repository(page.src_uri, link["path"])
        for page in pages
        for link in LINK.finditer(page.content_string)
    }
    outside = {path for path in links if not path.startswith("docs/") and path not in TOP_PAGES}
    return {path for path in outside if (root / path).exists()}


def _file_page(root: Path, path: str) -> str:
    """Return the page of a file, or of a folder with all its files; the search does not list it."""
    parts = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n"]
    source = root / path
    for file in [source] if source.is_file() else sorted(source.glob("*.*")):
        text = file.read_text(encoding="utf-8").rstrip()
        heading = "" if file == source else f"\n## {file.name}\n"
        parts.append(f"{heading}\n````{file.suffix.removeprefix('.')}\n{text}\n````\n")
    return "".join(parts)


def _in_repository(here: str, link: str) -> str:
    """Return the path in the repository of a link on a page of the site."""
    folder = "" if here in TOP_PAGES else posixpath.join("docs", posixpath.dirname(here))
    return posixpath.normpath(posixpath.join(folder, link))
