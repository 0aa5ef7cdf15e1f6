"""Markup that cannot be broken out of: what is not markup already is escaped when it is put into some."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from torchvet.renderers.wording import encodable, printable

_EMPTY = frozenset(["meta", "link", "input", "br"])
_UNSAFE = re.compile("[<>&\u2028\u2029]")


class Html(str):
    """Text that is markup and safe as it is."""


NONE = Html("")


def safe(inside: str) -> Html:
    """A text as markup: foreign strings with their control characters written out and everything else escaped."""
    return inside if isinstance(inside, Html) else Html(html.escape(printable(encodable(inside))))


def joined(parts: Iterable[str]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(safe, parts)))


def tag(name: str, /, *inside: str, **attributes: str | int | bool | None) -> Html:
    """An element. Of an attribute's name a last underscore is dropped and others are hyphens: `class_`, `aria_label`.
    True is an attribute without a value; False and None are none."""
    given = []
    for key, value in attributes.items():
        written = key.rstrip("_").replace("_", "-")
        if value is True:
            given.append(f" {written}")
        elif value is not False and value is not None:
            given.append(f' {written}="{html.escape(printable(encodable(str(value))))}"')
    opened = f"<{name}{''.join(given)}>"
    return Html(opened if name in _EMPTY else f"{opened}{joined(inside)}</{name}>")


def json_block(name: str, value: Any) -> Html:
    """A value as JSON that scripts read by the element's id; no string in it can end the element."""
    plain = _printable(msgspec.to_builtins(value))
    text = _UNSAFE.sub(lambda m: f"\\u{ord(m[0]):04x}", msgspec.json.encode(plain).decode())
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(encodable(value))
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, (list, tuple)) else value


def table(columns: list[str], rows: list[list[str]], caption: str = "", numbers: frozenset[int] = frozenset()) -> Html:
    """A table that scrolls within itself where it is too wide; `numbers` are the columns that are aligned right."""
    kinds = ["num" if at in numbers else None for at in range(len(columns))]
    heads = [tag("th", c, scope="col", class_=k) for c, k in zip(columns, kinds, strict=True)]
    lines = [tag("tr", *(tag("td", cell, class_=k) for cell, k in zip(row, kinds, strict=True))) for row in rows]
    said = tag("caption", caption) if caption else NONE
    whole = tag("table", said, tag("thead", tag("tr", *heads)), tag("tbody", *lines))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption or "table")
