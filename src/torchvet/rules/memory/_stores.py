"""What a statement stores, and into what: `holder.append(value)`, `holder[key] = value`, `total += value`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, Loop, is_call, names_in, receiver, sole_target, targets_of, terminal, walk

_ADDABLE = re.compile(r"\s*[^\s\d\"'\[{]")
_BINDS = re.compile(r"([A-Za-z_][\w.]*)[ \t]*(?::[^=]+)?=(?!=)(.*)")
UNDER_A_KEY = re.compile(r"\][ \t]*=(?!=)")
_KEYED = re.compile(r"[ \t]*([A-Za-z_][\w.]*\[[^\]\n'\":]+\])[ \t]*=(?!=)")
"""A line that may put something under a key that is not written down."""
ADDING = ("append", "extend", "appendleft", "add")
_COMES_AGAIN = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.RShift)
"""`step % 10`, `step // 100`: the same key for many steps."""


@dataclass(eq=False, frozen=True)
class Stored:
    """One store. `loop` is the widest loop of its unit in which the holder goes on growing; None where it only grows
    from call to call. `lasting` is whether nothing ever empties the holder as long as the program runs."""

    event: Event
    holder: ast.expr
    value: ast.expr
    loop: Loop | None = None
    lasting: bool = False
    key: ast.expr | None = None
    """The key under which a dict takes it in."""

    @property
    def adds(self) -> bool:
        """Whether it adds up values instead of collecting them."""
        return self.key is None and not isinstance(self.event.node, ast.Call)

    @property
    def name(self) -> str:
        """The holder as it is written."""
        return self.event.unit.file.segment(self.holder)

    @property
    def variable(self) -> str:
        """The variable that the holder's name begins with: `self` of `self.rows["loss"]`."""
        return re.split(r"[.\[]", self.name, maxsplit=1)[0]

    @property
    def root(self) -> ast.expr:
        """The holder without keys and calls: see `root_of`."""
        return root_of(self.holder)


def root_of(node: ast.expr) -> ast.expr:
    """`history` of `history["loss"]` and of `history.setdefault(k, [])`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else (receiver(node) or node.func)
    return node


def put_by(event: Event) -> Stored | None:
    """What a call with one argument puts into what it is called on, as `holder.append(value)` does."""
    on, given = receiver(event.call), event.call.args
    # `array.append(values, axis)` is a function.
    return Stored(event, on, given[0]) if on is not None and len(given) == 1 else None


def put(file: SourceFile, *methods: str) -> Iterator[Stored]:
    """The stores by calls of these methods, wherever they stand."""
    yield from filter(None, map(put_by, file.calls(*methods)))


def collected(file: SourceFile) -> Iterator[Stored]:
    """`holder.append(value)` and `holder[step] = value`, wherever they stand."""
    yield from put(file, "append", "appendleft", "extend")
    yield from keyed(file)


def keyed(file: SourceFile) -> Iterator[Stored]:
    """`holder[key] = value` where the holder is a dict and the key is another one in each pass of a loop."""
    # By text first: units without such a line are never walked.
    lines = {file.line_of(m.start(1)) for m in file.words.lines_like(_KEYED, UNDER_A_KEY)}
    for unit in file.units_at(sorted(lines)):
        for event in unit.events:
            if event.line in lines and (found := _keyed_by(event)) is not None:
                yield found


def _keyed_by(event: Event) -> Stored | None:
    one = under_a_key(event)
    return one if one is not None and one.key is not None and key_changes(one.key, event) and in_dict(one) else None


def under_a_key(event: Event) -> Stored | None:
    """`holder[key] = value`, whatever the holder and the key."""
    node = event.node
    target = sole_target(node)
    if not isinstance(target, ast.Subscript) or not isinstance(node, ast.Assign):
        return None
    return Stored(event, target.value, node.value, key=target.slice)


def in_dict(store: Stored) -> bool:
    """Whether a holder is bound to nothing but dicts."""
    values = store.event.unit.file.roles.values(store.holder, store.event.unit)
    # A tensor and a list are written to in the same way.
    return bool(values) and all(is_dict(value) for value, _ in values)


def is_dict(node: ast.expr | None) -> bool:
    """Whether an expression makes a dict."""
    return isinstance(node, ast.Dict) or (is_call(node, "dict", "defaultdict", "OrderedDict"))


def key_changes(key: ast.expr, event: Event) -> bool:
    """Whether a key counts up, or is what a loop around the event goes over."""
    # Whatever else the key has.
    if any(isinstance(one, ast.BinOp) and isinstance(one.op, _COMES_AGAIN) for one in walk(key)):
        return False
    return counts_up(key, event) or loop_of_key(key, event) is not None


def counts_up(key: ast.expr, event: Event) -> bool:
    """Whether a part of a key is a number that a loop around, or a method of the class, adds to."""
    for one in walk(key):
        if isinstance(one, ast.Name):
            added = (b for b in event.unit.bindings.get(one.id, ()) if isinstance(b.node, ast.AugAssign))
            # Counted up outside of the loops around, it is the same in all of their turns.
            if any(b.loop is not None and event.inside(b.loop) for b in added):
                return True
        # Outside of methods `self_name` is empty.
        elif isinstance(one, ast.Attribute) and terminal(one.value) == event.unit.self_name() != "":
            owner = event.unit.method_class()
            found = owner.attributes.get(one.attr, ()) if owner is not None else ()
            if any(isinstance(b.node, ast.AugAssign) for b, _ in found):
                return True
    return False


def loop_of_key(key: ast.expr, event: Event) -> Loop | None:
    """The outermost loop around an event whose variable is a part of a key."""
    names = names_in(key)
    loop, found = event.loop, None
    while loop is not None:
        if isinstance(loop.node, (ast.For, ast.AsyncFor)) and names & {terminal(t) for t in targets_of(loop.node)}:
            found = loop
        loop = loop.parent
    return found


def added_up(file: SourceFile) -> Iterator[Stored]:
    """`total += value`, `mean = 0.9 * mean + 0.1 * value`."""
    lines = list(_lines_that_add(file))
    units = {id(u): u for u in map(file.unit_at, lines)}
    wanted = set(lines)
    for unit in units.values():
        for event in unit.events:
            if event.line in wanted:
                yield from _sum(event)


def _lines_that_add(file: SourceFile) -> Iterator[int]:
    """Lines that may add something to a name: a look at the text before anything is walked."""
    for operator in ("+=", "+"):
        position = file.text.find(operator)
        while position >= 0:
            line = file.line_of(position)
            text = file.lines[line - 1].strip()
            if operator == "+=":
                rest = text.partition("+=")[2]
                # Numbers, texts and lists are no tensors.
                wanted = not rest.endswith(".item()") and _ADDABLE.match(rest) is not None
            else:
                bound = _BINDS.match(text)
                wanted = bound is not None and bound[1] in bound[2]
            if wanted:
                yield line
            # Two characters on: `+=` is found by both operators, and once by each.
            position = file.text.find(operator, position + 2)


def _sum(event: Event) -> Iterator[Stored]:
    node = event.node
    if isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.Add):
            yield Stored(event, node.target, node.value)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target = node.targets[0]
        if isinstance(target, (ast.Name, ast.Attribute)):
            for value in _without(node.value, ast.unparse(target)):
                yield Stored(event, target, value)


def _without(node: ast.BinOp, name: str) -> Iterator[ast.expr]:
    """The other side of a sum of which one side is the name, or a multiple of it."""
    if not isinstance(node.op, (ast.Add, ast.Sub)):
        return
    # `0.9 * mean + x` and `x + 0.9 * mean`.
    for own, other in ((node.left, node.right), (node.right, node.left)):
        parts = [own.left, own.right] if isinstance(own, ast.BinOp) and isinstance(own.op, ast.Mult) else [own]
        if any(ast.unparse(part) == name for part in parts):
            yield other
            return


def store(event: Event) -> Stored | None:
    """What an event stores, where it is `x.append(value)`, `x += value`, `x = x + value` or `x[key] = value` under a
    key that changes."""
    node = event.node
    if isinstance(node, ast.Call) and isinstance(event.parent, ast.Expr) and terminal(node) in ADDING:
        found = None if node.keywords else put_by(event)
        places = (ast.Name, ast.Attribute, ast.Subscript)
        return found if found is not None and isinstance(found.holder, places) else None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return Stored(event, node.target, node.value)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        target, value = node.targets[0], node.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and terminal(value.left) == target.id:
            return Stored(event, target, value.right)
    return _keyed_by(event)
