"""Columns of a dataset that a Trainer has dropped, and the model's `forward` asks its keywords for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torchvet.rules.kit import Location, Place, RankRecording, Recording, Related, Rule, SourceFile, records
from torchvet.rules.shared.trainers import made_in, settings_of
from torchvet.source.model import Event, Unit, is_name, receiver, terminal

_COPIES = ("dict", "copy", "deepcopy")
_ASKS = ("get", "pop", "setdefault")
_GOES_THROUGH = ("items", "keys", "values")
_NAMED = 4
_DEEP = 3
"""Functions that hand keywords on to one another."""


@dataclass
class Wanted:
    """Columns that the model's `forward` would have taken, and did not get: `dropped`, with the first line that asks.

    `alone` says that these are all that were dropped. `made` is the line that makes the Trainer.
    """

    dropped: records.columns.DroppedColumns
    columns: list[str]
    file: SourceFile
    asks: int
    named: bool
    made: tuple[SourceFile, Event] | None

    @property
    def alone(self) -> bool:
        """Whether nothing else was dropped."""
        return set(self.columns) == set(self.dropped.columns)

    @property
    def said(self) -> str:
        """Which columns the Trainer drops, and how `forward` would take them."""
        one, names = self.dropped, ", ".join(f'"{name}"' for name in self.columns[:_NAMED])
        more = f" and {len(self.columns) - _NAMED} more" if len(self.columns) > _NAMED else ""
        takes = f"asks `**{one.keywords}` for" if self.named else f"would find in `**{one.keywords}`"
        columns = "column" if len(self.columns) == 1 else "columns"
        return f"{one.trainer} drops the {columns} {names}{more} of the training set, which {one.model}.forward {takes}"

    @property
    def cause(self) -> str:
        """What the Trainer goes by."""
        return (
            f"{self.dropped.trainer} keeps only columns that are named arguments of the model's forward "
            "(`remove_unused_columns=True`): what forward takes by `**` never reaches it, and nothing raises"
        )

    def places(self) -> tuple[Place | Location | None, list[Related]]:
        """Where to change something: the line that makes the Trainer, or else the one that trains. And the lines that
        ask, and that make its settings."""
        asks = Location(path=self.file.path, line=self.asks)
        related = [Rule.beside("asks", f"{self.dropped.model}.forward", asks)]
        if self.made is None:
            return self.dropped.place, related
        file, event = self.made
        settings = settings_of(file, event)
        if settings is not None:
            related.append(Rule.beside("settings", "made here", Location(path=file.path, line=settings.lineno)))
        return file.place(event.node, event), related


@dataclass
class _Asked:
    """What functions ask their keywords for: strings, and lines that ask for what is not written there."""

    names: dict[str, int] = field(default_factory=dict)
    computed: list[int] = field(default_factory=list)

    def add(self, key: ast.expr) -> None:
        """Note a key that is asked for."""
        if not isinstance(key, ast.Constant):
            self.computed.append(key.lineno)
        elif isinstance(key.value, str):
            self.names.setdefault(key.value, key.lineno)


def wanted_columns(
    rank: RankRecording, recording: Recording, without_gradient: Iterable[str], silent: bool
) -> Wanted | None:
    """Dropped columns that the model of these parameters asks for by name. Where their modules are `silent`, also those
    of a model that goes through its keywords."""
    heads = {name.partition(".")[0] for name in without_gradient}
    mine = (one for one in rank.latest(records.columns.DroppedColumns, "id") if heads & set(one.parts))
    return next((found for one in mine if (found := _wanted_of(one, recording, silent)) is not None), None)


def _wanted_of(dropped: records.columns.DroppedColumns, recording: Recording, silent: bool) -> Wanted | None:
    file = recording.model(dropped.forward.path)
    forward = file.unit_at(dropped.forward.line) if file is not None else None
    if file is None or forward is None or forward.name != "forward":
        return None
    asked = _Asked()
    _ask(file, forward, dropped.keywords, set(dropped.columns), asked, _DEEP)
    named = [name for name in dropped.columns if name in asked.names]
    if not named and not (silent and asked.computed):
        return None
    line = min(asked.names[name] for name in named) if named else asked.computed[0]
    made = made_in(recording, dropped.trainer)
    return Wanted(dropped, named or dropped.columns, file, line, bool(named), made)


def _ask(file: SourceFile, unit: Unit, keywords: str, columns: set[str], asked: _Asked, deep: int) -> None:
    """Gather what a function, and those of the file that it hands its keywords to, ask them for."""
    thrown = {id(node.value) for node in ast.walk(unit.node) if isinstance(node, ast.Expr)}
    for name in (keywords, *_copies(unit, keywords)):
        for node in ast.walk(unit.node):
            # A column that is taken out and thrown away is not wanted.
            for key in _keys(node, name) if id(node) not in thrown else ():
                asked.add(key)
        for event in unit.events if deep else ():
            if isinstance(event.node, ast.Call) and any(
                k.arg is None and is_name(k.value, name) for k in event.node.keywords
            ):
                _ask_callee(file, _called(file, event), event, columns, asked, deep - 1)


def _called(file: SourceFile, event: Event) -> Unit | None:
    """What a call runs: a function of the file, or the `forward` of a module that is made there."""
    callee, function = file.callee(event), event.call.func
    if callee is not None or not isinstance(function, (ast.Name, ast.Attribute)):
        return callee
    known = file.roles.class_of(function, event.unit)
    return known.method("forward") if known is not None else None


def _copies(unit: Unit, keywords: str) -> list[str]:
    """Names that a function gives to its keywords, or to a copy of them."""
    bound = [node for node in ast.walk(unit.node) if isinstance(node, ast.Assign) and _is_copy(node.value, keywords)]
    return [target.id for node in bound for target in node.targets if isinstance(target, ast.Name)]


def _is_copy(node: ast.expr, keywords: str) -> bool:
    """Whether a value is the keywords: `kwargs`, `dict(kwargs)`, `kwargs.copy()`, `copy(kwargs)`, `{**kwargs, …}`."""
    parts: list[ast.expr | None] = [node]
    if isinstance(node, ast.Call) and terminal(node) in _COPIES:
        parts = [receiver(node), *node.args, *(k.value for k in node.keywords if k.arg is None)]
    elif isinstance(node, ast.Dict):
        parts = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    return any(is_name(one, keywords) for one in parts)


def _ask_callee(
    file: SourceFile, callee: Unit | None, event: Event, columns: set[str], asked: _Asked, deep: int
) -> None:
    if callee is None or isinstance(callee.node, ast.Module):
        return
    for name in columns.intersection(callee.given_parameters):
        asked.names.setdefault(name, event.line)
    more = callee.node.args.kwarg
    if more is not None:
        _ask(file, callee, more.arg, columns, asked, deep)


def _keys(node: ast.AST, keywords: str) -> Iterator[ast.expr]:
    """What a node asks the keywords for. Handing them on as a whole asks for nothing."""
    if isinstance(node, ast.Call):
        yield from _keys_of_call(node, keywords)
    elif isinstance(node, ast.Subscript) and is_name(node.value, keywords):
        if isinstance(node.ctx, ast.Load):
            yield node.slice
    elif isinstance(node, ast.Compare) and is_name(node.comparators[-1], keywords):
        # `"mask" not in extras` may stand before a message only.
        if isinstance(node.ops[-1], ast.In):
            yield node.left
    elif isinstance(node, ast.For) and is_name(node.iter, keywords):
        yield node.iter


def _keys_of_call(node: ast.Call, keywords: str) -> Iterator[ast.expr]:
    if is_name(receiver(node), keywords):
        if terminal(node) in _ASKS:
            yield from node.args[:1]
        elif terminal(node) in _GOES_THROUGH:
            yield node
    # `pick(extras, "mask")`
    elif any(is_name(one, keywords) for one in node.args):
        yield from (one for one in node.args if isinstance(one, ast.Constant))
