"""JSON: the contract itself, for programs. Its schema is docs/report.schema.json."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Report
from torchvet.renderers.wording import encodable


class JsonRenderer:
    """The report as indented JSON, `schema` and `version` first; what is unknown is null, never missing."""

    format: ClassVar[str] = "json"
    extensions: ClassVar[tuple[str, ...]] = (".json",)

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The report as JSON text, two spaces an indent. `color` and `width` change nothing."""
        tree = msgspec.to_builtins(report)
        ordered = {"schema": tree.pop("schema"), "version": tree.pop("version"), **tree}
        return msgspec.json.format(msgspec.json.encode(clean(ordered)), indent=2).decode() + "\n"


def clean(value: Any) -> Any:
    """The same tree with every string encodable, so that an undecodable file name cannot break the report."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {clean(k): clean(v) for k, v in value.items()}
    return [clean(v) for v in value] if isinstance(value, (list, tuple)) else value
