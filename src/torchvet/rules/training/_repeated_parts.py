"""Containers of modules that a file builds by repeating what one call makes: `[Block()] * n`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.rules.kit import Edits, SourceFile
from torchvet.source.model import Event, Unit, edits, is_call, names_in, origins, terminal, walk

CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_GATHER = (*CONTAINERS, "fromkeys", "append", "extend", "insert")
_TRAINS = re.compile(
    r"(Lazy)?(Linear|Bilinear|Conv(Transpose)?\dd|(Batch|Layer|Group|Instance|RMS|SyncBatch)Norm(\dd)?|Embedding(Bag)?"
    r"|(RNN|LSTM|GRU)(Cell)?|MultiheadAttention|Transformer\w*)$"
)
"""Modules of torch that have parameters of their own; one PReLU for several layers is common."""
_WITHOUT = re.compile(
    r"act|swish|mish|[a-z]lu$|sigmoid|softmax|drop|pool|identity|pad|sample|flatten|arrange|reduce", re.I
)
"""Names of modules, defined elsewhere, that have none."""
_DEPTH = 3
"""Classes of the file within each other that are looked into."""
_COPIES = re.compile(r"clone|cop(y|ies)|replica|duplicat", re.I)
"""Names of functions that are to give copies."""
_ON_PURPOSE = re.compile(r"shar(e|ing)|\btie|tied|tying|reuse|recur|universal|albert|siamese", re.I)


@dataclass(frozen=True)
class Repeated:
    """A container whose entries are what one call has made."""

    event: Event
    """The call that builds the container."""
    node: ast.expr
    """The expression that repeats."""
    made: str
    edits: Edits


def repeated(file: SourceFile) -> Iterator[Repeated]:
    """The containers of a file that are built so, but for those whose text says that they share."""
    for event in file.calls(*CONTAINERS):
        if file.dotted(event.call.func).startswith("torch.nn.") and not on_purpose(file, event):
            for starred in event.call.args:
                given = starred.value if isinstance(starred, ast.Starred) else starred
                yield from _in(given, event)
                passed = _uncopied(given, event.unit)
                if _COPIES.search(event.unit.name) and passed in event.unit.parameters:
                    yield Repeated(event, given, passed, ())


def on_purpose(file: SourceFile, event: Event, alike: bool = False) -> bool:
    """Whether the text around a container says that its entries are to be one, or names one for each.

    Entries that are `alike` give the same result: a class or function that shares something else does not explain that.
    """
    statement = event.statement
    tests = [ast.unparse(arm.test) for arm, _ in event.context.arms if isinstance(arm, (ast.If, ast.IfExp))]
    owner = event.unit.method_class()
    around = [] if alike else [event.unit.name, owner.name if owner is not None else ""]
    texts = [*_comments(file, statement), *_said(statement), *tests, *around]
    return any(map(_ON_PURPOSE.search, texts)) or any(map(_names_each, walk(statement)))


def _comments(file: SourceFile, statement: ast.stmt) -> Iterator[str]:
    """The comments within a statement and those right above it."""
    for row in file.lines[statement.lineno - 1 : statement.end_lineno]:
        yield row.partition("#")[2]
    for row in reversed(file.lines[: statement.lineno - 1]):
        if not row.lstrip().startswith("#"):
            return
        yield row


def _said(node: ast.AST) -> Iterator[str]:
    """The names in a statement, but for what is passed to what makes its entries."""
    if isinstance(node, ast.Call) and terminal(node) not in _GATHER:
        yield ast.unparse(node.func)
        return
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield ast.unparse(node)
    for child in ast.iter_child_nodes(node):
        yield from _said(child)


def _uncopied(given: ast.expr, unit: Unit) -> str:
    """The name that `[module for _ in range(n)]` or `[module] * n` repeats."""
    made = origins.made_by(given, unit)
    given = made[0][0] if len(made) == 1 else given
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult):
        listed = given.left if isinstance(given.left, ast.List) else given.right
        parts = listed.elts if isinstance(listed, ast.List) else []
        part = parts[0] if len(parts) == 1 else None
    else:
        part = given.elt if isinstance(given, (ast.ListComp, ast.GeneratorExp)) else None
    return part.id if isinstance(part, ast.Name) else ""


def _names_each(node: ast.AST) -> bool:
    """`[head, head]` and `{"a": head, "b": head}`."""
    if isinstance(node, (ast.List, ast.Tuple)):
        values = list(node.elts)
    elif isinstance(node, ast.Dict):
        values = list(node.values)
    else:
        return False
    named = [ast.unparse(one) for one in values if isinstance(one, (ast.Name, ast.Attribute))]
    return len(set(named)) < len(named)


def _in(given: ast.expr, event: Event) -> Iterator[Repeated]:
    """What a container is given, where it is written there or bound to a name once."""
    found = origins.made_by(given, event.unit)
    for node, unit in found if len(found) == 1 else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from _in(node.left, event)
            yield from _in(node.right, event)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from _product(node, event, unit)
        elif is_call(node, "fromkeys") and len(node.args) == 2 and _trains(node.args[1], unit):
            yield _of_keys(node, event, unit.file)


def _product(node: ast.BinOp, event: Event, unit: Unit) -> Iterator[Repeated]:
    """`[Block()] * n` and `n * [Block()]`."""
    listed, times = (node.left, node.right) if isinstance(node.left, ast.List) else (node.right, node.left)
    once = isinstance(times, ast.Constant) and times.value in (0, 1)
    if not isinstance(listed, ast.List) or once or not any(_trains(one, unit) for one in listed.elts):
        return
    file = unit.file
    made, number = ", ".join(map(file.segment, listed.elts)), file.segment(times)
    # A part that is made elsewhere would stay one.
    fresh = all(isinstance(one, ast.Call) for one in listed.elts) and "_" not in names_in(listed)
    made_anew = made if len(listed.elts) == 1 else "part"
    turns = f"for _ in range({number})" + ("" if len(listed.elts) == 1 else f" for part in ({made})")
    change = [edits.replace(file, node, f"[{made_anew} {turns}]")] if fresh else ()
    yield Repeated(event, node, made, change)


def _of_keys(node: ast.Call, event: Event, file: SourceFile) -> Repeated:
    """`dict.fromkeys(names, Block())`."""
    names, made = (file.segment(one) for one in node.args)
    return Repeated(event, node, made, [edits.replace(file, node, f"{{name: {made} for name in {names}}}")])


def _trains(node: ast.AST, unit: Unit, depth: int = _DEPTH) -> bool:
    """Whether a call makes a module with parameters, as far as the file shows."""
    if not isinstance(node, ast.Call) or not depth:
        return False
    dotted = unit.file.dotted(node.func)
    owner = unit.file.classes.get(dotted)
    if owner is not None:
        return not all(base.startswith("torch.nn.") for base in owner.bases) or _holds(owner.node, unit, depth)
    name = dotted.removeprefix("torch.nn.")
    if name == dotted and not dotted.startswith("torch."):
        made = dotted.rpartition(".")[2]
        # As the entry of a container, a class of another file is a module.
        return depth == _DEPTH and made[:1].isupper() and not _WITHOUT.search(made)
    return dotted == "torch.nn.Parameter" or (
        name != dotted and (bool(_TRAINS.match(name)) or (name in CONTAINERS and _holds(node, unit, depth)))
    )


def _holds(node: ast.AST, unit: Unit, depth: int) -> bool:
    """Whether one of the calls within a node does."""
    return any(_trains(one, unit, depth - 1) for one in walk(node) if one is not node)
