"""Which renderer a format or a file name picks."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchvet.errors import BadInput
from torchvet.renderers import RENDERERS, renderer_for, renderer_for_path


@pytest.mark.parametrize(("name", "format"), [("a/report.json", "json"), ("REPORT.JSON", "json"), ("out.txt", "text")])
def test_the_extension_picks(name: str, format: str) -> None:
    assert renderer_for_path(name).format == format
    assert renderer_for_path(Path(name)).format == format


@pytest.mark.parametrize("name", ["report", "report.pdf", ".json", "a.json/report"])
def test_an_unknown_extension_lists_the_known(name: str) -> None:
    with pytest.raises(BadInput, match=r"known extensions are \.txt, \.json") as caught:
        renderer_for_path(name)
    assert name in str(caught.value) and caught.value.status == 2


def test_formats_are_picked_by_name() -> None:
    assert [renderer_for(r.format) for r in RENDERERS] == list(RENDERERS)
    assert renderer_for("JSON").format == "json"


def test_an_unknown_format_lists_the_known() -> None:
    with pytest.raises(BadInput, match="'yaml': the known formats are text, json"):
        renderer_for("yaml")


def test_no_two_renderers_share_a_name_or_an_extension() -> None:
    formats = [r.format for r in RENDERERS]
    extensions = [e for r in RENDERERS for e in r.extensions]
    assert len(set(formats)) == len(formats)
    assert len(set(extensions)) == len(extensions)
