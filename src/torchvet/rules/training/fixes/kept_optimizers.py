"""Edits for an optimizer that is built again and again: built once, where what it is given is known and stays so."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Iterator, SourceFile, all_or_none
from torchvet.rules.shared import training_loops as loops
from torchvet.source import model

_LEAVES_IT = frozenset(("train", "eval", "zero_grad", "parameters", "named_parameters", "print", "len"))
"""Calls after which a model has the same parameters as before."""


def before_the_loop(file: SourceFile, made: model.Event, loop: model.Loop, inner: ast.AST) -> Edits:
    """`optimizer = …` moved from a loop's body, or from that of the `inner` loop there, to the line before it, where
    nothing in the loop decides what it gets."""
    statement, name = made.statement, _bound(made)
    if not isinstance(loop.node, (ast.For, ast.While)) or inner not in loop.node.body or not name:
        return []
    if not model.edits.stands_alone(file, loop.node) or not _stays(made.unit, loop, made):
        return []
    others = [e for e in made.unit.bindings.get(name, ()) if e.statement is not statement]
    return [] if others or _is_built_upon(made.unit, loop, name) else model.blocks.moved(file, statement, loop.node)


def in_the_constructor(file: SourceFile, made: model.Event) -> Edits:
    """One that a method builds for itself: built at the end of `__init__`, and taken from the object."""
    unit, owner, name, own = made.unit, made.unit.owner, _own_name(made), made.unit.self_name()
    first = owner.methods.get("__init__") if owner is not None else None
    if owner is None or first is None or not name or not own or first.self_name() != own or file.mentions(f".{name}"):
        return []
    if not _whole(made.call, unit, own) or not all(_set_once(file, owner, first, a) for a in _on(made.call, own)):
        return []
    if not _ends_with_all(file, owner, first) or not model.edits.stands_alone(file, made.statement):
        return []
    put = model.edits.after(file, first.node.body[-1], f"{own}.{name} = {file.segment(made.call)}")
    return [*put, model.edits.replace(file, made.call, f"{own}.{name}")] if put else []


def _ends_with_all(file: SourceFile, owner: model.ClassModel, first: model.Unit) -> bool:
    """Whether an object has all its parameters at the end of its class's `__init__`."""
    # A subclass may set other parameters after this constructor has run.
    derived = any(c is not owner and owner in c.lineage for c in file.classes.values())
    return not derived and not any(isinstance(e.node, (ast.Return, ast.Yield)) for e in first.events)


def given_by_the_caller(file: SourceFile, made: model.Event) -> Edits:
    """One that a function builds for itself: its only caller builds it before the loop and passes it on. Whoever else
    calls the function still gets one."""
    unit, name, callers = made.unit, _own_name(made), file.callers(made.unit)
    # With several callers each would have to build one, and not all of them train the same model.
    if not name or unit.owner is not None or unit.parent is not file.top or len(callers) != 1:
        return []
    caller, loop = callers[0], callers[0].loop
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)) or len(unit.bindings[name]) != 1:
        return []
    text = _in_words_of(file, made, caller, loop)
    if not text or name in (*caller.unit.bindings, *caller.unit.parameters, *unit.parameters):
        return []
    asked, passed = _one_more_parameter(file, unit, name), _one_more_argument(file, caller.call, name)
    put, deeper = model.edits.before(file, loop.node, f"{name} = {text}"), _under_a_test(file, made.statement, name)
    return all_or_none((asked, passed, put, deeper))


def not_again(file: SourceFile, made: model.Event, first: model.Event) -> Edits:
    """One that a method builds anew, just as `__init__` has built it: the line is taken out."""
    body = made.unit.node.body
    alike = ast.dump(made.call) == ast.dump(first.call) and _whole(made.call, made.unit, made.unit.self_name())
    if not alike or made.statement not in body or len(body) < 2 or len(model.targets_of(made.statement)) != 1:
        return []
    return loops.without_statement(file, made.statement)


def _bound(made: model.Event) -> str:
    """The one name that an optimizer is bound to as it was made; empty for an attribute, for several, or a part."""
    node = made.statement
    plain = isinstance(node, ast.Assign) and len(node.targets) == 1 and node.value is made.node
    return node.targets[0].id if plain and isinstance(node.targets[0], ast.Name) else ""  # type: ignore[attr-defined]


def _own_name(made: model.Event) -> str:
    """The variable of a function that each call of it binds to an optimizer, for itself alone; empty for others."""
    name, unit = _bound(made), made.unit
    return name if name and made.statement in unit.node.body and not _is_built_upon(unit, None, name) else ""


def _read(call: ast.Call) -> set[str]:
    """The variables that a call reads; without those of its own comprehensions."""
    bound = (t for n in model.walk(call) if isinstance(n, ast.comprehension) for t in model.targets_of(n))
    return model.names_in(call) - {t.id for t in bound if isinstance(t, ast.Name)}


def _root(node: ast.AST | None) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _stays(unit: model.Unit, loop: model.Loop, made: model.Event) -> bool:
    """Whether what an optimizer is given is the same before a loop as in each of its turns: nothing there binds a part
    of it, and nothing is done with it before but what leaves it alone."""
    read = {name for name in _read(made.call) if name not in unit.file.imports.names}
    within = {id(n) for n in model.walk(made.statement)}
    for event in loops.events_in(unit, loop):
        if id(event.node) in within:
            continue
        if any(_root(t) in read for t in model.targets_of(event.node)):
            return False
        if event.node.__class__ is not ast.Call or event.index > made.index or model.terminal(event.node) in _LEAVES_IT:
            continue
        if any(_root(one) in read for one in (model.receiver(event.call), *model.given(event.call))):
            return False
    return not model.names_in(getattr(loop.node, "target", None)) & read


def _is_built_upon(unit: model.Unit, loop: model.Loop | None, name: str) -> bool:
    """Whether something lasting is made of an optimizer: a scheduler that belongs to this one."""
    for event in loops.events_in(unit, loop):
        node = event.node
        built = model.given(node.value) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else []
        deleted = model.targets_of(node) if isinstance(node, ast.Delete) else []
        if any(_root(one) == name for one in (*built, *deleted)):
            return True
    return False


def _whole(call: ast.Call, unit: model.Unit, own: str) -> bool:
    """Whether a call in a method reads nothing but the object's attributes and what the file knows everywhere."""
    homes = (unit.home(name) for name in _read(call) - {own})
    return all(home is None or home.is_module for home in homes)


def _on(call: ast.Call, own: str) -> Iterator[str]:
    """The attributes of the object that a call reads."""
    for node in model.walk(call):
        if isinstance(node, ast.Attribute) and model.is_name(node.value, own):
            yield node.attr


def _set_once(file: SourceFile, owner: model.ClassModel, first: model.Unit, attribute: str) -> bool:
    """Whether an attribute is bound in `__init__`, whatever comes, and it or a part of it nowhere else in the file."""
    bound = owner.attributes.get(attribute, [])
    if len(bound) != 1 or bound[0][0].unit is not first or bound[0][0].context.arms or bound[0][0].loop is not None:
        return False
    events = (e for u in file.units_with(attribute) for e in u.events if e.statement is not bound[0][0].statement)
    nodes = (n for e in events for target in model.targets_of(e.node) for n in model.walk(target))
    return not any(model.is_attribute(n, attribute) for n in nodes)


def _in_words_of(file: SourceFile, made: model.Event, caller: model.Event, loop: model.Loop) -> str:
    """An optimizer's construction as the caller would write it before its loop; empty where that cannot be said."""
    call, text, read = made.call, file.segment(made.call), _read(made.call)
    if call.lineno != call.end_lineno or not text.isascii():
        return ""
    named = [n for n in model.walk(call) if isinstance(n, ast.Name) and n.id in read]
    for node in sorted(named, key=lambda n: -n.col_offset):
        word = _in_word_of(file, made.unit, node.id, caller, loop)
        if not word:
            return ""
        start = node.col_offset - call.col_offset
        text = text[:start] + word + text[start + len(node.id) :]
    return text


def _in_word_of(file: SourceFile, unit: model.Unit, name: str, caller: model.Event, loop: model.Loop) -> str:
    """What a function's name is called by its caller before a loop; empty where that cannot be said."""
    if name not in unit.parameters:
        home = unit.home(name)
        return name if home in (None, file.top) and caller.unit.home(name) is home else ""
    passed = file.passed(caller, unit, name) if name not in unit.bindings else []
    same = [file.segment(one) for one in passed if _is_there_before(caller, loop, one)]
    return same[0] if same else ""


def _is_there_before(caller: model.Event, loop: model.Loop, argument: ast.expr) -> bool:
    """Whether an argument is a constant, or a name or attribute that is the same before a loop as in its turns."""
    if not isinstance(argument, (ast.Name, ast.Attribute)):
        return isinstance(argument, ast.Constant)
    root = _root(argument)
    bound = (t for e in loops.events_in(caller.unit, loop) for t in model.targets_of(e.node))
    counted = model.names_in(getattr(loop.node, "target", None))
    return bool(root) and root not in counted and all(_root(t) != root for t in bound)


def _one_more_parameter(file: SourceFile, unit: model.Unit, name: str) -> Edits:
    asked = unit.node.args  # type: ignore[union-attr]
    if asked.vararg or asked.kwarg or asked.kwonlyargs or not asked.args or unit.decorators:
        return []
    last = asked.defaults[-1] if asked.defaults else asked.args[-1]
    return model.edits.before_the_bracket(file, last, f", {name}=None")


def _one_more_argument(file: SourceFile, call: ast.Call, name: str) -> Edits:
    # What a call spreads out may fill the new parameter, too.
    spread = model.is_unpacked(call)
    return model.edits.with_argument(file, call, f"{name}={name}") if model.given(call) and not spread else []


def _under_a_test(file: SourceFile, statement: ast.stmt, name: str) -> Edits:
    """`optimizer = …` where none was given."""
    if statement.lineno != statement.end_lineno or not model.edits.stands_alone(file, statement):
        return []
    start, margin = model.edits.start_of(file, statement), model.edits.margin(file, statement)
    deeper = margin + ("\t" if margin.endswith("\t") else "    ")
    text = f"{margin}if {name} is None:{file.newline}{deeper}"
    return [Edit(path=file.path, start=(start[0], 1), end=start, text=text)]
