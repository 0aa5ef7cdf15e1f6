"""Renderers turn a report into text. There is one class for each format; the extension of `-o FILE` picks it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PurePath

from torchvet.errors import BadInput
from torchvet.renderers.base import Renderer
from torchvet.renderers.github import GithubRenderer
from torchvet.renderers.html import HtmlRenderer
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
    HtmlRenderer(),
)


_NEEDS = {"html": ("plotly", "report")}
"""By format: a package that it cannot do without, and the extra of torchvet that brings it."""


def renderer_for(format: str) -> Renderer:
    """The renderer of a format by name. Raises `BadInput` with the known names, or with the package that it needs."""
    for renderer in RENDERERS:
        if renderer.format == format.strip().lower():
            return _usable(renderer)
    known = ", ".join(r.format for r in RENDERERS)
    raise BadInput(f"unknown format {format!r}: the known formats are {known}")


def renderer_for_path(path: str | PurePath) -> Renderer:
    """The renderer that a file's extension picks. Raises `BadInput` likewise."""
    suffix = PurePath(path).suffix.lower()
    for renderer in RENDERERS:
        if suffix in renderer.extensions:
            return _usable(renderer)
    known = ", ".join(e for r in RENDERERS for e in r.extensions)
    given = f"the extension {suffix!r}" if suffix else "a name without an extension"
    raise BadInput(f"{path}: {given} picks no report format: the known extensions are {known}")


def _usable(renderer: Renderer) -> Renderer:
    package, extra = _NEEDS.get(renderer.format, ("", ""))
    if package and find_spec(package) is None:
        raise BadInput(
            f"reports as {renderer.format} need {package}, which is not installed here: pip install 'torchvet[{extra}]'"
        )
    return renderer
