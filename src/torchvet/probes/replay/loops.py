"""Reads the program's own counters of the loops that it is in: a step that it leaves out counts there all the same."""

from __future__ import annotations

import ast
from types import FrameType

from torchvet.probes.base import frames
from torchvet.probes.crash import positions
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.replay.effects import SCOPES
from torchvet.probes.replay.plans import live

_MOST = 3


def counters(frame: FrameType | None) -> dict[str, int]:
    """Name and value of each counter, the outermost loop's first; the innermost few. Empty where there is none."""
    found: list[tuple[str, int]] = []
    for one in live(frame):
        if frames.owner(one.f_code.co_filename) != frames.USER:
            continue
        names = _names(one)
        # Not `f_locals`, which before Python 3.13 leaves references behind in the frame.
        values = (frame_locals(one) or {}) if names else {}
        mine = [(n, values[n]) for n in names if type(values.get(n)) is int]
        found = [*mine, *found]
    return dict(found[-_MOST:])


def _names(frame: FrameType) -> list[str]:
    """The counters of the loops around the line that a frame is at, outermost first."""
    found: list[str] = []
    # Down the tree along the line, so that only the loops around it are met.
    node: ast.AST | None = positions.tree(frame.f_code.co_filename)
    while node is not None:
        node = next((c for c in ast.iter_child_nodes(node) if _around(c, frame.f_lineno)), None)
        if isinstance(node, SCOPES):
            # A function within begins anew: loops outside of it are another frame's.
            found = []
        elif isinstance(node, (ast.For, ast.AsyncFor)) and (name := _counter(node)):
            found.append(name)
    return found


def _around(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 1 << 30) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _counter(loop: ast.For | ast.AsyncFor) -> str | None:
    """`i` of `for i in range(n)` and of `for i, batch in enumerate(loader)`, with whatever is wrapped around."""
    target, source = loop.target, loop.iter
    while isinstance(source, ast.Call):
        word = getattr(source.func, "id", getattr(source.func, "attr", ""))
        if word == "enumerate" and isinstance(target, (ast.Tuple, ast.List)) and target.elts:
            target = target.elts[0]
            return target.id if isinstance(target, ast.Name) else None
        if word in ("range", "trange", "count"):
            return target.id if isinstance(target, ast.Name) else None
        # Without arguments it is a method: what it is called on may be wrapped as well.
        source = source.args[0] if source.args else source.func
    return None
