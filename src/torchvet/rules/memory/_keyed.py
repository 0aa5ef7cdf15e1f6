"""What is put into dicts that outlive a pass, under keys that are others in each pass."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, Loop, targets_of, terminal, walk


@dataclass(frozen=True)
class Keyed:
    """`holder[key] = value`."""

    event: Event
    holder: ast.expr
    key: ast.expr
    value: ast.expr


def keyed(file: SourceFile) -> Iterator[Keyed]:
    """`holder[key] = value` where the holder is a dict and the key is another one in each pass of a loop."""
    lines = {file.line_of(m.start(1)) for m in file.words.lines_like(_KEYED, UNDER_A_KEY)}
    for unit in file.units_at(sorted(lines)):
        for event in unit.events:
            if event.line in lines and (found := keyed_store(event)) is not None:
                yield found


UNDER_A_KEY = re.compile(r"\][ \t]*=(?!=)")
_KEYED = re.compile(r"[ \t]*([A-Za-z_][\w.]*\[[^\]\n'\":]+\])[ \t]*=(?!=)")
"""A line that may put something under a key that is not written down."""


def keyed_store(event: Event) -> Keyed | None:
    """The store of `holder[key] = value`; None for anything else."""
    node = event.node
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if not isinstance(target, ast.Subscript) or not key_changes(target.slice, event):
        return None
    values = event.unit.file.roles.values(target.value, event.unit)
    if not values or not all(is_dict(value) for value, _ in values):
        return None
    return Keyed(event, target.value, target.slice, node.value)  # type: ignore[attr-defined]


def is_dict(node: ast.expr) -> bool:
    """Whether an expression makes a dict."""
    return isinstance(node, ast.Dict) or (
        isinstance(node, ast.Call) and terminal(node) in ("dict", "defaultdict", "OrderedDict")
    )


def key_changes(key: ast.expr, event: Event) -> bool:
    """Whether a key counts up, or is what a loop around the event goes over."""
    if any(isinstance(one, ast.BinOp) and isinstance(one.op, _COMES_AGAIN) for one in walk(key)):
        return False
    return counts_up(key, event) or loop_of_key(key, event) is not None


_COMES_AGAIN = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.RShift)
"""`step % 10`, `step // 100`: the same key for many steps."""


def counts_up(key: ast.expr, event: Event) -> bool:
    """Whether a part of a key is a number that a loop around, or a method of the class, adds to."""
    for one in walk(key):
        if isinstance(one, ast.Name):
            bound = event.unit.bindings.get(one.id, ())
            if any(isinstance(b.node, ast.AugAssign) and b.loop is not None and event.loop is not None
                   and event.loop.within(b.loop) for b in bound):  # fmt: skip
                return True
        elif isinstance(one, ast.Attribute) and terminal(one.value) == event.unit.self_name() != "":
            owner = event.unit.method_class()
            found = owner.attributes.get(one.attr, ()) if owner is not None else ()
            if any(isinstance(b.node, ast.AugAssign) for b, _ in found):
                return True
    return False


def loop_of_key(key: ast.expr, event: Event) -> Loop | None:
    """The outermost loop around an event whose variable is a part of a key."""
    names = {one.id for one in walk(key) if isinstance(one, ast.Name)}
    loop, found = event.loop, None
    while loop is not None:
        if isinstance(loop.node, (ast.For, ast.AsyncFor)) and names & {terminal(t) for t in targets_of(loop.node)}:
            found = loop
        loop = loop.parent
    return found
