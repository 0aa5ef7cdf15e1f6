"""Foreign texts within Markdown."""

from __future__ import annotations

import re

from torchvet.renderers.wording import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$@])")
_CODE = re.compile(r"(`[^`]+`)")


def escaped(text: str) -> str:
    """A foreign text with Markdown's and HTML's special characters escaped; `code` stays code."""
    pieces = _CODE.split(printable(text))
    return "".join(_code(p) if _CODE.fullmatch(p) else _SPECIAL.sub(r"\\\1", p) for p in pieces)


def code_span(text: str) -> str:
    """Any text as code in a table's cell."""
    text = printable(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return _code(f"{fence}{space}{text}{space}{fence}")


def _code(span: str) -> str:
    # Even within code, a bar ends a table's cell unless a backslash precedes it.
    return span.replace("|", "\\|")
