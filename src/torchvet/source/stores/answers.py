"""What the index of source text answers: stores, removals and limits of a holder, functions by their lines."""

from __future__ import annotations

import ast

import msgspec

from torchvet.source.program.mutations import RemovalKind, StoreKind
from torchvet.source.program.scopes import Placed, Scope
from torchvet.source.stores.occasions import Occasion


class Store(msgspec.Struct, frozen=True):
    """A statement that puts something into a holder. Lines and columns count from 1.

    `function` is the qualified name of the function around it, empty at a module's top; `text` the first line without
    its indentation; `value` the source of what is stored, empty where that is not known. `in_loop` is true where a loop
    goes around the statement in its own function, or around a call that brings the holder there.
    """

    path: str
    line: int
    end_line: int
    column: int
    function: str
    kind: StoreKind
    text: str
    value: str
    in_loop: bool


class Removal(msgspec.Struct, frozen=True, order=True):
    """A line that takes something out of a holder, makes it anew or limits its length."""

    path: str
    line: int
    kind: RemovalKind
    in_loop: bool


class Limit(msgspec.Struct, frozen=True):
    """A removal that bounds a holder, its occasion, and the turns of the loop that stores if it waits for its end."""

    removal: Removal
    occasion: Occasion
    turns: int | None = None


class FunctionSpan(msgspec.Struct, frozen=True):
    """A function's lines, from its `def` to the last of its body."""

    qualname: str
    first_line: int
    last_line: int


def stored(node: ast.expr | ast.stmt, scope: Scope, kind: StoreKind, value: ast.expr | None, in_loop: bool) -> Store:
    """The store that a node in a scope is."""
    source, function, line = scope.file.source, scope.function(), node.lineno
    return Store(
        path=scope.file.path,
        line=line,
        end_line=node.end_lineno or line,
        column=source.column(node),
        function=function.qualname if function is not None else "",
        kind=kind,
        text=source.line(line),
        value=source.segment(value) if value is not None else "",
        in_loop=in_loop,
    )


def removed(place: Placed, kind: RemovalKind, in_loop: bool) -> Removal:
    """The removal that something in one place is."""
    return Removal(place.file.path, place.line, kind, in_loop)
