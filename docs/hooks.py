"""What MkDocs calls to take in the pages that stand at the root of the repository: README.md is the home page."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "casebook/README.md": "casebook.md",
}
"""Pages outside docs/, and what the site calls them."""
BESIDE = {"LICENSE": "LICENSE.txt", "examples/leaky.py": "leaky.py"}
"""Files that pages link to."""
MOVED = {**PAGES, **BESIDE}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: Any) -> Files:
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=relinked(text, PurePosixPath(source).parent)))
    for source, target in BESIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Pages below docs/ link to the root as a reader of the repository needs it."""
    if page.file.generated_by:
        return markdown
    return relinked(markdown, PurePosixPath("docs", page.file.src_uri).parent)


def relinked(text: str, folder: PurePosixPath) -> str:
    """A page's text with the links to what lies elsewhere on the site changed. `folder` is the page's, in the
    repository."""

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        inside = _normal(folder / target)
        home = str(folder).partition("docs")[1] == "docs"
        if inside in MOVED:
            up = "../" * (len(folder.parts) - 1) if home else ""
            return f"{before}{up}{MOVED[inside]}{anchor or ''}{after}"
        if not home and inside.startswith("docs/"):
            return f"{before}{inside.removeprefix('docs/')}{anchor or ''}{after}"
        return match[0]

    return LINK.sub(link, text)


def _normal(path: PurePosixPath) -> str:
    """A path without `..`, as links have it."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts[-1:] = []
        else:
            parts.append(part)
    return "/".join(parts)
