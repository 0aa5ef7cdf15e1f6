"""The code cells of a notebook's JSON, and their text without what only IPython understands."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

import msgspec

from torchvet.gc_pause import collector_off
from torchvet.source.text import split_lines

_BARE = r"(?:pip|conda|mamba|cd|ls|mkdir|cp|mv|rm|cat)[ \t]+(?![=.(\[,)])\S"
"""Commands that IPython takes without their `%`."""
_MAGIC = re.compile(rf"^[ \t]*(?:[%!?]|{_BARE}|\S.*\?[ \t]*$|[^#'\"]*?=[ \t]*[%!])", re.MULTILINE)
_ASSIGNED = re.compile(r"([^#'\"=]*=[ \t]*)[%!]")
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")


class Cell(NamedTuple):
    """A code cell: its number among all cells from 1, and its source as it stands."""

    number: int
    source: str


def read_cells(data: bytes) -> list[Cell]:
    """The Python cells of a notebook of format 3 or 4. Raises ValueError where it is none."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    cells = _cells_of(tree)
    if cells is None:
        raise ValueError("it has no list of cells")
    if not _is_python(tree.get("metadata")):
        return []
    code = ((n, c) for n, c in enumerate(cells, 1) if isinstance(c, dict) and c.get("cell_type") == "code")
    return [Cell(number, _source(number, cell)) for number, cell in code]


def _cells_of(tree: Any) -> list[Any] | None:
    """The cells of a notebook: format 3 has them in worksheets."""
    if not isinstance(tree, dict):
        return None
    cells = tree.get("cells")
    sheets = tree.get("worksheets")
    if cells is None and isinstance(sheets, list) and sheets and isinstance(sheets[0], dict):
        cells = sheets[0].get("cells")
    return cells if isinstance(cells, list) else None


def _source(number: int, cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list) and all(isinstance(s, str) for s in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise ValueError(f"the source of cell {number} is no text")
    return source


def _is_python(metadata: Any) -> bool:
    metadata = metadata if isinstance(metadata, dict) else {}
    info, kernel = metadata.get("language_info"), metadata.get("kernelspec")
    name = info.get("name") if isinstance(info, dict) else None
    name = name or (kernel.get("language") if isinstance(kernel, dict) else None)
    return not isinstance(name, str) or name.lower() in ("python", "python3", "ipython")


def without_magics(source: str) -> str:
    """A cell's source with `pass` where IPython's own lines stand; columns and lines of all else stay."""
    if not (_MAGIC.search(source) or source[:1] in (" ", "\t")) or parsing_error(source) is None:
        return source  # a line may begin with % in the middle of an expression or a string
    lines = split_lines(source)
    if _begins_indented(lines):
        return "\n" * (len(lines) - 1)
    first = next((line.strip() for line in lines if line.strip()), "")
    # The body of any other cell magic may be another language; empty lines keep the places of what follows.
    if first.startswith("%%") and first.split()[0] not in _PYTHON_CELLS:
        return "\n" * (len(lines) - 1)
    out, continued = [], False
    for line in lines:
        magic = _MAGIC.match(line) is not None
        out.append("" if continued else _blanked(line) if magic else line)
        continued = (continued or magic) and line.rstrip().endswith("\\")
    return "\n".join(out)


def _begins_indented(lines: list[str]) -> bool:
    """A cell that IPython takes by removing its first line's indentation: its columns would not be ours."""
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return bool(indent) and parsing_error("\n".join(line.removeprefix(indent) for line in lines)) is None


def _blanked(line: str) -> str:
    assigned = _ASSIGNED.match(line)
    if assigned is not None:
        # `files = !ls` binds a name that later cells use.
        return assigned[1] + "None"
    return line[: len(line) - len(line.lstrip())] + "pass"


def parsing_error(text: str) -> Exception | None:
    """Why Python does not take a text; None where it does."""
    try:
        with collector_off():
            ast.parse(text)
    except RecursionError:
        return None  # Python takes it where there is room
    except (SyntaxError, ValueError, MemoryError) as error:
        return error
    return None
