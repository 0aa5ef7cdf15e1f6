"""Edits where an object stores itself, or a method of its own, in what it holds: what is stored refers to it weakly."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Finding, Iterator, SourceFile
from torchvet.rules.memory.fixes.back_references import imported
from torchvet.source.model import ClassModel, Unit, calls_in, edits, given, is_call, is_name, receiver, targets_of, walk

_PUTS = ("append", "appendleft", "add", "insert", "setdefault", "update", "put")


def own_self_weak(file: SourceFile, finding: Finding) -> Edits:
    """`weakref.proxy(self)` in the place of `self`, and of methods bound to it, where a method stores these in an
    attribute that a garbage cycle runs through."""
    named = finding.holder.path if finding.holder is not None else []
    for owner, _, attribute in (name.rpartition(".") for name in dict.fromkeys(named)):
        model = file.classes.get(owner)
        found = list(_edits(file, model, attribute)) if model is not None else []
        if model is None or not found:
            continue
        asked = [m for m in ("functools", "weakref") if any(f"{m}." in edit.text for edit in found)]
        imports = [imported(file, module, model.node.lineno) for module in asked]
        # None: no place for the import.
        if None not in imports:
            return [*(edit for made in imports for edit in made or ()), *found]
    return ()


def _edits(file: SourceFile, model: ClassModel, attribute: str) -> Iterator[Edit]:
    for unit in model.methods.values():
        own = unit.self_name()
        for value in _stored(unit, own, attribute) if own else ():
            yield from _weak(file, model, value, own)
    for unit in file.units_with(attribute):
        own = unit.self_name()
        for event in unit.events if own else ():
            if isinstance(event.node, ast.Assign) and _gives_itself(event.node, own, attribute):
                yield edits.replace(file, event.node.value, f"weakref.proxy({own})")


def _gives_itself(node: ast.Assign, own: str, attribute: str) -> bool:
    """`child.parent = self`."""
    target, value = node.targets[0], node.value
    if len(node.targets) != 1 or not isinstance(target, ast.Attribute) or target.attr != attribute:
        return False
    on_other = isinstance(target.value, ast.Name) and target.value.id != own
    return on_other and is_name(value, own)


def _stored(unit: Unit, own: str, attribute: str) -> Iterator[ast.expr]:
    """What a method stores in an attribute of its object, or in a container there."""
    for event in unit.events:
        node = event.node
        if isinstance(node, ast.Assign):
            into, values = list(targets_of(node)), [node.value]
        elif is_call(node, *_PUTS):
            on = receiver(node)
            into, values = [on] if on is not None else [], given(node)
        else:
            continue
        if any(_is_part_of(target, own, attribute) for target in into):
            yield from values


def _is_part_of(target: ast.expr, own: str, attribute: str) -> bool:
    """`self.handlers`, `self.handlers[event]`."""
    while isinstance(target, ast.Subscript):
        target = target.value
    on = target.value if isinstance(target, ast.Attribute) and target.attr == attribute else None
    return is_name(on, own)


def _weak(file: SourceFile, model: ClassModel, value: ast.expr, own: str) -> Iterator[Edit]:
    """The object itself, and its bound methods, in an expression: not what is read or called of it there."""
    lambdas = [n for n in walk(value) if isinstance(n, ast.Lambda)]
    yield from (e for n in lambdas for e in _given_weakly(file, n, own))
    # Lambdas are edited as a whole, above.
    inner, used = {id(n) for one in lambdas for n in walk(one)}, _used_in(value)
    for node in (n for n in walk(value) if id(n) not in inner | used):
        if is_name(node, own):
            yield edits.replace(file, node, f"weakref.proxy({own})")
        elif isinstance(node, ast.Attribute) and is_name(node.value, own):
            method = model.methods.get(node.attr)
            # A decorated one may be a property or a static method.
            if method is not None and not method.decorators:
                # `self.method` would hold `self`; the function of the class does not.
                yield edits.replace(file, node, f"functools.partial(type({own}).{node.attr}, weakref.proxy({own}))")


def _used_in(value: ast.expr) -> set[int]:
    """By `id`, what an expression calls, names that it reads attributes of, and names that it gives to calls."""
    called = {id(call.func) for call in calls_in(value)}
    read = {id(n.value) for n in walk(value) if isinstance(n, ast.Attribute)}
    # Whoever is given the object may ask more of it than a proxy can answer.
    return called | read | {id(a) for call in calls_in(value) for a in given(call) if isinstance(a, ast.Name)}


def _given_weakly(file: SourceFile, function: ast.Lambda, own: str) -> Iterator[Edit]:
    """`lambda x, self=weakref.proxy(self): self.scale * x`: what the function reads is a weak reference of its own."""
    taken = function.args
    if taken.vararg or taken.kwarg or taken.kwonlyargs or own in {a.arg for a in (*taken.posonlyargs, *taken.args)}:
        return
    if not any(is_name(n, own) for n in walk(function.body)):
        return
    line, column = edits.start_of(file, function)
    colon = file.lines[line - 1].find(":", column - 1)
    # A default is written behind its parameter: the last of all is told by its place.
    before: list[ast.expr | ast.arg] = [*taken.posonlyargs, *taken.args, *taken.defaults]
    last = max(before, key=lambda n: (n.lineno, n.col_offset), default=None)
    if last is not None:
        end = last.end_lineno or last.lineno
        place, text = (end, file.column(end, last.end_col_offset or last.col_offset)), f", {own}=weakref.proxy({own})"
    else:
        place, text = (line, colon + 1), f" {own}=weakref.proxy({own})"
    yield Edit(path=file.path, start=place, end=place, text=text)
