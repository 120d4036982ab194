"""MkDocs hook: files outside docs/ that pages link to become part of the site.

Links are written for the repository, where ``../results/tables/x.md`` is a file. The site has the
same file at ``results/tables/x.md``. Links to folders and source files, which a site does not
have, become plain words. A link to nothing stays as it is, and the strict build complains.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SHOWN = {".md", ".png", ".svg", ".json"}
# fenced and inline code first, so that links inside are left alone; then [words](link)
_LINK = re.compile(r"```.*?```|`[^`\n]*`|(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)", re.DOTALL)


def site_name(path: Path) -> str:
    """Returns the place in the site of a file in the repository; the README is the index."""
    if path == ROOT / "README.md":
        return "index.md"
    return path.relative_to(DOCS if DOCS in path.parents else ROOT).as_posix()


def repository_file(link: str, page: Path) -> Path | None:
    """Returns what a link of a page points to, if the repository has it."""
    if re.match(r"[a-z]+:|#|/", link):
        return None
    path = Path(posixpath.normpath((page.parent / link.partition("#")[0]).as_posix()))
    return path if ROOT in path.parents and path.exists() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the linked files, and those that they link to."""
    waiting = [Path(page.abs_src_path) for page in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for _, link in _LINK.findall(page.read_text(encoding="utf-8")):
            path = repository_file(link, page)
            if path is None or not path.is_file() or path.suffix not in SHOWN:
                continue
            name = site_name(path)
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(path)))
                if path.suffix == ".md":
                    waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Writes links to files of the repository as links to their places in the site."""
    here = Path(page.file.abs_src_path)
    folder = posixpath.dirname(page.file.src_uri)

    def place(found: re.Match[str]) -> str:
        words, link = found.groups()
        path = None if link is None else repository_file(link, here)
        if path is None:
            return found[0]
        if path.is_dir() or path.suffix not in SHOWN:
            return words[1:-1]
        _, sign, anchor = link.partition("#")
        return f"{words}({posixpath.relpath(site_name(path), folder or '.')}{sign}{anchor})"

    return _LINK.sub(place, markdown)
