"""Renderers turn a report into text. There is one class for each format; the extension of `-o FILE` picks it."""

from __future__ import annotations

from pathlib import PurePath

from torchvet.errors import BadInput
from torchvet.renderers.base import Renderer
from torchvet.renderers.github import GithubRenderer
from torchvet.renderers.json import JsonRenderer
from torchvet.renderers.markdown import MarkdownRenderer
from torchvet.renderers.plain import TextRenderer
from torchvet.renderers.sarif import SarifRenderer

__all__ = ["RENDERERS", "Renderer", "renderer_for", "renderer_for_path"]

RENDERERS: tuple[Renderer, ...] = (
    TextRenderer(),
    JsonRenderer(),
    SarifRenderer(),
    GithubRenderer(),
    MarkdownRenderer(),
)


def renderer_for(format: str) -> Renderer:
    """The renderer of a format by name. Raises `BadInput` with the known names."""
    for renderer in RENDERERS:
        if renderer.format == format.strip().lower():
            return renderer
    known = ", ".join(r.format for r in RENDERERS)
    raise BadInput(f"unknown format {format!r}: the known formats are {known}")


def renderer_for_path(path: str | PurePath) -> Renderer:
    """The renderer that a file's extension picks. Raises `BadInput` with the known extensions."""
    suffix = PurePath(path).suffix.lower()
    for renderer in RENDERERS:
        if suffix in renderer.extensions:
            return renderer
    known = ", ".join(e for r in RENDERERS for e in r.extensions)
    given = f"the extension {suffix!r}" if suffix else "a name without an extension"
    raise BadInput(f"{path}: {given} picks no report format: the known extensions are {known}")
