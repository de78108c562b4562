"""The hook of `mkdocs`: pages of the root become pages of the site, and links follow them.

Rule: it changes no file. A link that leads to a file of the checkout that is no page, such as a
module or an example, becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {"README.md": "index.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=_text(name)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: object) -> str:
    """Follow the links of a page in the checkout to the page of the site."""
    place = page.file.src_uri
    in_checkout = {to: name for name, to in ROOT_PAGES.items()}.get(place, f"docs/{place}")

    def follow(link: re.Match[str]) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(in_checkout), target))
        found = ROOT_PAGES.get(path, path.removeprefix("docs/"))
        is_page = path in ROOT_PAGES or path.startswith("docs/")
        if is_page and files.get_file_from_path(found) is not None:
            return f"{mark}[{text}]({posixpath.relpath(found, posixpath.dirname(place))}{anchor})"
        if not (ROOT / path).exists():
            return link[0]  # a broken one: mkdocs reports it
        return text

    return _LINK.sub(follow, markdown)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
